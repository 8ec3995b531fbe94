/**
 * What the listener costs over bare `node:http`, in CPU per request of the server process.
 *
 * Bars: a 1 KiB answer by the fast path at most 1.25x, a routed, validated JSON answer at most 2x. Rounds alternate
 * between the two servers, so that noise of the machine meets both; the figure is the median of the ratios of the rounds.
 */
import { fork } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { cpus } from 'node:os';
import type { LoadOrder, LoadReport } from './http-load.ts';

const quick = process.argv.includes('--quick');
const ROUNDS = quick ? 3 : 7;
const REQUESTS = quick ? 8000 : 20_000;
const CONNECTIONS = 32;
const HOT = '/o/b3:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef';
const ORDER = JSON.stringify({ name: 'crate', tags: ['blue', 'small'], count: 6 });

const get = (path: string): string =>
  `GET ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: bench/1\r\nAccept: */*\r\nAccept-Encoding: gzip, br\r\n\r\n`;
const post = (path: string, body: string): string =>
  `POST ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: bench/1\r\nAccept: */*\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;

const CASES = [
  { name: 'fast path, 1 KiB', request: get(HOT), bar: 1.25 },
  { name: 'routed GET, validated, JSON', request: get('/items/crate'), bar: 2 },
  { name: 'routed POST, validated body, JSON', request: post('/items', ORDER), bar: 2 },
  { name: 'the same GET through a work queue', request: get('/queue/crate'), bar: undefined },
];

async function ask<T>(child: ChildProcess, order: unknown): Promise<T> {
  const answered = once(child, 'message');
  child.send(order as object);
  const [answer] = (await answered) as [T & { error?: string }];
  if (answer.error !== undefined) throw new Error(answer.error);
  return answer;
}

interface Server {
  readonly child: ChildProcess;
  readonly port: number;
}

async function start(mode: string): Promise<Server> {
  const child = fork(new URL('./ingress-server.ts', import.meta.url), [mode], { execArgv: process.execArgv });
  const [{ port }] = (await once(child, 'message')) as [{ port: number }];
  return { child, port };
}

async function cpuPerRequest_us(
  server: Server,
  load: ChildProcess,
  request: string,
  requests: number,
): Promise<number> {
  const order: LoadOrder = { port: server.port, request, connections: CONNECTIONS, requests };
  await ask(server.child, 'start');
  const report = await ask<LoadReport>(load, order);
  const { cpu_us } = await ask<{ cpu_us: number }>(server.child, 'stop');
  return cpu_us / report.requests;
}

const median = (values: readonly number[]): number => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!;
const spread = (values: readonly number[]): string =>
  `${Math.min(...values).toFixed(2)}-${Math.max(...values).toFixed(2)}`;

const [bare, ingress] = await Promise.all([start('bare'), start('ingress')]);
const load = fork(new URL('./http-load.ts', import.meta.url), { execArgv: process.execArgv });
const rows: object[] = [];
for (const { name, request, bar } of CASES) {
  const ratios: number[] = [];
  const bare_us: number[] = [];
  const ours_us: number[] = [];
  for (const server of [bare, ingress]) await cpuPerRequest_us(server, load, request, REQUESTS);
  for (let round = 0; round < ROUNDS; round += 1) {
    const reference = await cpuPerRequest_us(bare, load, request, REQUESTS);
    const ours = await cpuPerRequest_us(ingress, load, request, REQUESTS);
    bare_us.push(reference);
    ours_us.push(ours);
    ratios.push(ours / reference);
  }
  const ratio = median(ratios);
  rows.push({
    case: name,
    bare_us: median(bare_us).toFixed(1),
    ours_us: median(ours_us).toFixed(1),
    ratio: ratio.toFixed(2),
    spread: spread(ratios),
    bar: bar ?? '-',
    ok: bar === undefined ? '-' : ratio <= bar,
  });
}
for (const { child } of [bare, ingress]) child.kill();
load.kill();
console.table(rows);
console.log(
  `${ROUNDS} rounds of ${REQUESTS} requests on ${CONNECTIONS} connections; ${cpus().length} x ${cpus()[0]?.model}; node ${process.version}`,
);
