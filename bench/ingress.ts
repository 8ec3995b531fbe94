/**
 * The cost of the listener: CPU per request over bare `node:http`, import time, memory of idle connections.
 *
 * Bars: a 1 KiB answer by the fast path at most 1.25x, a routed, validated JSON answer at most 1.3x. Each ratio is of two
 * consecutive runs of the same length, first bare, then ours, with warm servers; the load generator is a third process.
 * Importing kernel and ingress takes at most 60 ms of CPU with a warm compile cache (CPU time grows with the load of the
 * machine: the note states that of `node:http` alone). 10 000 idle connections that were answered without a parser use less
 * than 60 MiB.
 */
import { execFileSync, fork } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { LoadOrder, LoadReport } from './http-load.ts';
import { callChild, measure, median, quick, report } from './lib.ts';
import type { Case } from './lib.ts';

const ROUNDS = quick ? 5 : 9;
const REQUESTS = quick ? 6000 : 15_000;
const WARM_UP_ROUNDS = 3;
const CONNECTIONS = 32;
const IDLE_CONNECTIONS = 10_000;
const MIB = 1024 * 1024;
const HOT = '/o/b3:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef';
const ORDER = JSON.stringify({ name: 'crate', tags: ['blue', 'small'], count: 6 });
const COMMON = 'Host: 127.0.0.1\r\nUser-Agent: bench/1\r\nAccept: */*\r\nAccept-Encoding: gzip, br\r\n';

const get = (path: string): string => `GET ${path} HTTP/1.1\r\n${COMMON}\r\n`;
const post = (path: string, body: string): string =>
  `POST ${path} HTTP/1.1\r\n${COMMON}Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;

const REQUEST_KINDS = [
  { name: 'fast path, 1 KiB', request: get(HOT), bar: 1.25 },
  { name: 'routed GET, validated, JSON', request: get('/items/crate'), bar: 1.3 },
  { name: 'routed POST, validated body, JSON', request: post('/items', ORDER), bar: 1.3 },
  { name: 'the same GET through a work queue', request: get('/queue/crate') },
];

interface Server {
  readonly child: ChildProcess;
  readonly port: number;
}

async function start(mode: string, ...execArgv: string[]): Promise<Server> {
  const child = fork(new URL('./ingress-server.ts', import.meta.url), [mode], { execArgv });
  const [{ port }] = (await once(child, 'message')) as [{ port: number }];
  return { child, port };
}

async function cpuPerRequest_us(server: Server, load: ChildProcess, request: string): Promise<number> {
  const order: LoadOrder = { port: server.port, request, connections: CONNECTIONS, requests: REQUESTS };
  await callChild(server.child, 'start');
  const { requests } = await callChild<LoadReport>(load, order);
  const { cpu_us } = await callChild<{ cpu_us: number }>(server.child, 'stop');
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

/** Each repeat is a new process; the first fills the compile cache. */
function importTime(cache: string): Case {
  const program = fileURLToPath(new URL('./import-time.ts', import.meta.url));
  const env = { ...process.env, NODE_COMPILE_CACHE: cache };
  const http_ms: number[] = [];
  return {
    name: 'import of kernel and ingress, warm',
    unit: 'ms of CPU',
    bar: 60,
    get note() {
      return `node:http alone ${median(http_ms).toFixed(0)} ms`;
    },
    run() {
      const [http, all] = execFileSync(process.execPath, [program], { env, encoding: 'utf8' }).split(' ').map(Number);
      http_ms.push(http!);
      return all!;
    },
  };
}

function idleMemory(name: string, mode: string, request: string, bar?: number): Case {
  return {
    name: `${IDLE_CONNECTIONS} idle connections, ${name}`,
    unit: 'MiB',
    ...(bar !== undefined && { bar }),
    async run() {
      const { child, port } = await start(mode, '--expose-gc');
      const { rss_bytes: before } = await callChild<{ rss_bytes: number }>(child, 'memory');
      const args = [String(port), String(IDLE_CONNECTIONS), request];
      const clients = fork(new URL('./idle-clients.ts', import.meta.url), args);
      await once(clients, 'message');
      const { rss_bytes: after } = await callChild<{ rss_bytes: number }>(child, 'memory');
      for (const process of [clients, child]) process.kill();
      return (after - before) / MIB;
    },
  };
}

const cache = mkdtempSync(join(tmpdir(), 'ron-bench-import-'));
const [bare, ours] = await Promise.all([start('bare'), start('ingress')]);
const load = fork(new URL('./http-load.ts', import.meta.url));
// One round is not enough to optimize both servers.
for (let round = 0; round < WARM_UP_ROUNDS; round += 1)
  for (const { request } of REQUEST_KINDS)
    for (const server of [bare, ours]) await cpuPerRequest_us(server, load, request);
const rows = await measure(
  REQUEST_KINDS.map((kind) => ratio(kind, bare, ours, load)),
  ROUNDS,
);
for (const child of [bare.child, ours.child, load]) child.kill();
const resources = await measure(
  [
    importTime(cache),
    idleMemory('answered without a parser', 'ingress', get(HOT), 60),
    idleMemory("with Node's parser", 'ingress', get('/items/crate')),
    idleMemory('bare node:http', 'bare', get('/items/crate')),
  ],
  quick ? 2 : 5,
);
rmSync(cache, { recursive: true });
report('ingress', 'The listener: CPU per request over bare node:http, import, idle connections', [
  ...rows,
  ...resources,
]);
