/**
 * What the listener costs over bare `node:http`, in CPU per request of the server process.
 *
 * Bars: a 1 KiB answer by the fast path at most 1.25x, a routed, validated JSON answer at most 2x. Each figure is a ratio
 * of two runs of the same length right after each other, first bare, then ours, against servers that have warmed up;
 * the load comes from a third process.
 */
import { fork } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import type { LoadOrder, LoadReport } from './http-load.ts';
import { measure, median, quick, report } from './lib.ts';
import type { Case } from './lib.ts';

const ROUNDS = quick ? 5 : 9;
const REQUESTS = quick ? 6000 : 15_000;
const CONNECTIONS = 32;
const HOT = '/o/b3:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef';
const ORDER = JSON.stringify({ name: 'crate', tags: ['blue', 'small'], count: 6 });
const COMMON = 'Host: 127.0.0.1\r\nUser-Agent: bench/1\r\nAccept: */*\r\nAccept-Encoding: gzip, br\r\n';

const get = (path: string): string => `GET ${path} HTTP/1.1\r\n${COMMON}\r\n`;
const post = (path: string, body: string): string =>
  `POST ${path} HTTP/1.1\r\n${COMMON}Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;

const REQUEST_KINDS = [
  { name: 'fast path, 1 KiB', request: get(HOT), bar: 1.25 },
  { name: 'routed GET, validated, JSON', request: get('/items/crate'), bar: 2 },
  { name: 'routed POST, validated body, JSON', request: post('/items', ORDER), bar: 2 },
  { name: 'the same GET through a work queue', request: get('/queue/crate') },
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
  const child = fork(new URL('./ingress-server.ts', import.meta.url), [mode]);
  const [{ port }] = (await once(child, 'message')) as [{ port: number }];
  return { child, port };
}

async function cpuPerRequest_us(server: Server, load: ChildProcess, request: string): Promise<number> {
  const order: LoadOrder = { port: server.port, request, connections: CONNECTIONS, requests: REQUESTS };
  await ask(server.child, 'start');
  const { requests } = await ask<LoadReport>(load, order);
  const { cpu_us } = await ask<{ cpu_us: number }>(server.child, 'stop');
  return cpu_us / requests;
}

function ratio(kind: (typeof REQUEST_KINDS)[number], bare: Server, ours: Server, load: ChildProcess): Case {
  const bare_us: number[] = [];
  const ours_us: number[] = [];
  return {
    name: kind.name,
    unit: 'x bare node:http',
    ...(kind.bar !== undefined && { bar: kind.bar }),
    get note() {
      return `${median(bare_us).toFixed(1)} us bare, ${median(ours_us).toFixed(1)} us ours`;
    },
    async run() {
      bare_us.push(await cpuPerRequest_us(bare, load, kind.request));
      ours_us.push(await cpuPerRequest_us(ours, load, kind.request));
      return ours_us.at(-1)! / bare_us.at(-1)!;
    },
  };
}

const [bare, ours] = await Promise.all([start('bare'), start('ingress')]);
const load = fork(new URL('./http-load.ts', import.meta.url));
const rows = await measure(
  REQUEST_KINDS.map((kind) => ratio(kind, bare, ours, load)),
  ROUNDS,
);
for (const child of [bare.child, ours.child, load]) child.kill();
report('ingress', 'The listener over bare node:http, CPU per request', rows);
