/**
 * Throughput of kms compared with bare `node:crypto`.
 *
 * The ratio is operations per second of 64 clients over HTTP, with audit and the file backend, to a plain loop on one core.
 * Bars: Ed25519 sign 0.45, ML-DSA-65 sign 0.8, verify 0.6, Ed25519 in batches of 128 0.85. Each ratio is of two consecutive
 * runs. The load generator is a third process and shares the cores with the service. On a busy machine the ratio is too
 * low, so the CPU time of the main thread is printed too.
 */
import { fork } from 'node:child_process';
import { generateKeyPairSync, sign, verify } from 'node:crypto';
import { once } from 'node:events';
import type { LoadOrder, LoadReport } from './http-load.ts';
import { callChild, machine, machineLine, median, quick, table, writeJson } from './lib.ts';

const ROUNDS = quick ? 5 : 9;
const CLIENTS = 64;
const SECONDS = quick ? 1 : 2;
const BATCH = 128;
const B3 = 'af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262';

const server = fork(new URL('./kms-server.ts', import.meta.url));
const [{ port, token }] = (await once(server, 'message')) as [{ port: number; token: string }];
const load = fork(new URL('./http-load.ts', import.meta.url));

const head = (path: string, body: string): string =>
  `POST /v1/kms${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ${token}\r\n` +
  `Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;

async function post<T>(path: string, body: unknown): Promise<T> {
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  const answer = await fetch(`http://127.0.0.1:${port}/v1/kms${path}`, {
    method: 'POST',
    headers,
    body: JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(await answer.text());
  return (await answer.json()) as T;
}

interface Bare {
  readonly per_s: number;
  /** CPU time of one operation. */
  readonly cpu_us: number;
}

/** A plain loop on this thread. */
function bare(work: () => void): Bare {
  let count = 0;
  const start = performance.now();
  const cpu = process.threadCpuUsage();
  while (performance.now() - start < SECONDS * 1000) {
    for (let at = 0; at < 8; at += 1) work();
    count += 8;
  }
  const { user, system } = process.threadCpuUsage(cpu);
  return { per_s: count / ((performance.now() - start) / 1000), cpu_us: (user + system) / count };
}

interface Measured {
  readonly per_s: number;
  readonly p99_ms: number;
  /** CPU time of one operation: all threads of the service, and the main thread alone. */
  readonly cpu_us: number;
  readonly main_us: number;
  readonly blocked_ms: number;
  /** CPU time of the load generator for one operation. */
  readonly load_us: number;
  /** The most CPU time in one turn of the event loop; only in runs with `watch`. */
  readonly longest_turn_ms: number;
}

async function over(
  request: string,
  requests: number,
  operations: number,
  connections = CLIENTS,
  begin: 'start' | 'watch' = 'start',
): Promise<Measured> {
  const order: LoadOrder = { port, request, connections, requests };
  await callChild(server, begin);
  const { seconds, p99_ms, cpu_us: load_us } = await callChild<LoadReport>(load, order);
  const { cpu_us, main_us, ...loop } = await callChild<Omit<Measured, 'per_s' | 'p99_ms' | 'load_us'>>(server, 'stop');
  const count = requests * operations;
  const each = { cpu_us: cpu_us / count, main_us: main_us / count, load_us: load_us / count };
  return { per_s: count / seconds, p99_ms, ...each, ...loop };
}

interface Kind {
  readonly name: string;
  readonly bar: number;
  readonly request: string;
  readonly operations: number;
  readonly connections?: number;
  readonly bare: () => void;
}

async function keyOf(alg: string): Promise<string> {
  return (await post<{ kid: string }>('/keys', { tenant: 'bench', purpose: 'docs', alg })).kid;
}

async function kinds(): Promise<Kind[]> {
  const [ed, pq] = [await keyOf('ed25519'), await keyOf('ml-dsa-65')];
  const message = Buffer.from(`ron-kms/v1\n${ed}\n${B3}\n`);
  const classic = generateKeyPairSync('ed25519');
  const strong = generateKeyPairSync('ml-dsa-65');
  const signature = sign(null, message, classic.privateKey);
  const one = (kid: string): string => head('/sign', JSON.stringify({ kid, payload_b3: B3 }));
  const { sigs } = await post<{ sigs: unknown }>('/sign', { kid: ed, payload_b3: B3 });
  const items = Array.from({ length: BATCH }, () => ({ kid: ed, payload_b3: B3 }));
  return [
    {
      name: 'Ed25519 sign',
      bar: 0.45,
      request: one(ed),
      operations: 1,
      bare: () => void sign(null, message, classic.privateKey),
    },
    {
      name: 'ML-DSA-65 sign',
      bar: 0.8,
      request: one(pq),
      operations: 1,
      bare: () => void sign(null, message, strong.privateKey),
    },
    {
      name: 'Ed25519 verify, from cache',
      bar: 0.6,
      request: head('/verify', JSON.stringify({ kid: ed, payload_b3: B3, sigs })),
      operations: 1,
      bare: () => void verify(null, message, classic.publicKey, signature),
    },
    {
      name: `Ed25519 sign, batches of ${BATCH}`,
      bar: 0.85,
      request: head('/sign', JSON.stringify({ items })),
      operations: BATCH,
      connections: 8,
      bare: () => void sign(null, message, classic.privateKey),
    },
  ];
}

const rows: { name: string; bar: number; ratios: number[]; bare: Bare[]; ours: Measured[]; turn_ms: number }[] = [];
for (const kind of await kinds())
  rows.push({ name: kind.name, bar: kind.bar, ratios: [], bare: [], ours: [], turn_ms: 0 });
const all = await kinds();
for (let round = -1; round < ROUNDS; round += 1) {
  for (const [at, kind] of all.entries()) {
    const alone = bare(kind.bare);
    const requests = Math.max(CLIENTS, Math.ceil((alone.per_s * SECONDS * kind.bar) / kind.operations));
    const measured = await over(kind.request, requests, kind.operations, kind.connections);
    if (round < 0) continue;
    rows[at]!.bare.push(alone);
    rows[at]!.ours.push(measured);
    rows[at]!.ratios.push(measured.per_s / alone.per_s);
  }
}
for (const [at, kind] of all.entries()) {
  const requests = Math.max(CLIENTS, Math.ceil(4000 / (kind.operations * (kind.bar > 0.7 ? 4 : 1))));
  const watched = await over(kind.request, requests, kind.operations, kind.connections, 'watch');
  rows[at]!.turn_ms = watched.longest_turn_ms;
}
load.kill();
server.kill();

const result = rows.map(({ name, bar, ratios, bare: alone, ours, turn_ms }) => ({
  name,
  bar,
  ratio: median(ratios),
  min: Math.min(...ratios),
  max: Math.max(...ratios),
  bare_per_s: Math.round(median(alone.map((each) => each.per_s))),
  // The ratio of one core on an idle machine, from the CPU time of the main thread.
  main_ratio: median(ours.map((each, at) => alone[at]!.cpu_us / each.main_us)),
  per_s: Math.round(median(ours.map((each) => each.per_s))),
  p99_ms: median(ours.map((each) => each.p99_ms)),
  cpu_us: median(ours.map((each) => each.cpu_us)),
  main_us: median(ours.map((each) => each.main_us)),
  load_us: median(ours.map((each) => each.load_us)),
  blocked_ms: median(ours.map((each) => each.blocked_ms)),
  turn_ms,
  pass: median(ratios) >= bar,
}));
const figure = (value: number): string => (value >= 100 ? value.toFixed(0) : value.toFixed(2));
const lines = result.map((row) => [
  row.name,
  `${figure(row.ratio)} x bare`,
  `${figure(row.min)} .. ${figure(row.max)}`,
  `>= ${row.bar}`,
  row.pass ? 'pass' : 'FALLS SHORT',
  `${row.per_s}/s of ${row.bare_per_s}/s, p99 ${figure(row.p99_ms)} ms, ${figure(row.main_us)} us CPU on the main thread (${figure(row.main_ratio)} x bare), ${figure(row.cpu_us)} us in all, ${figure(row.load_us)} us of the load generator, loop late by ${figure(row.blocked_ms)} ms (p99.9), longest turn ${figure(row.turn_ms)} ms of CPU`,
]);
const json = JSON.stringify({ name: 'kms', quick, machine: machine(), rows: result });
const output = [
  `# kms over bare node:crypto, operations per second${quick ? ' (quick)' : ''}`,
  '',
  machineLine(),
  '',
  table(['measured', 'median', 'min .. max', 'bar', 'verdict', 'note'], lines),
  '',
  json,
];
process.stdout.write(`${output.join('\n')}\n`);
writeJson('kms', json);
