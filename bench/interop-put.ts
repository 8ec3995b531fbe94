/**
 * Memory of interop while it streams large bodies to storage. `node bench/interop-put.ts [--quick]`
 *
 * 64 clients send a body of 1 GiB each at the same time (quick: 16 MiB), so each is slow. Interop and passport are processes of
 * their own; clients and a storage that discards its input are in this one. Memory is that of interop without mapped files,
 * sampled every 50 ms after the first tenth of the bytes. The bar is its growth from then on.
 */
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Blake3Hasher } from '@napi-rs/blake-hash';
import { FileKeySource, mint } from '@ron/auth';
import { createServer } from '@ron/kernel/http';
import { machineLine, quick, scratchDir, table, writeJson } from './lib.ts';
import { cpu_us, ownMemory_bytes, startService, type ServiceProcess } from './servers.ts';

const MIB = 1024 * 1024;
const STREAMS = 64;
const BODY_BYTES = quick ? 16 * MIB : 1024 * MIB;
const CHUNK = Buffer.alloc(64 * 1024, 'ron');
const SAMPLE_MS = 50;
/** Bodies before the measurement, and the time between the starts of two streams: the exchange has 500 ms, also on a busy machine. */
const WARM_BYTES = CHUNK.length;
const WARM_BODIES = 64;
const START_MS = 25;
/** 64 streams with two chunks each, and the buffers of their sockets. */
const BAR_MIB = 64;

const dir = scratchDir('interop-put');
const children: ChildProcess[] = [];

interface Sink {
  readonly path: string;
  bytes: number;
  close(): void;
}

/** Acknowledges every body. All have the same content, so their addresses are known. */
async function startSink(path: string): Promise<Sink> {
  const receipts = new Map([WARM_BYTES, BODY_BYTES].map((size) => [String(size), receiptOf(size)]));
  const server = createServer((request, response) => {
    const receipt = receipts.get(request.headers['content-length']!)!;
    const headers = { 'Content-Type': 'application/json', 'Content-Length': receipt.length };
    request.on('data', (piece: Buffer) => (sink.bytes += piece.length));
    request.on('end', () => response.writeHead(201, headers).end(receipt));
  });
  // A body may take longer than the 300 s that Node allows.
  server.requestTimeout = 0;
  const sink: Sink = { path, bytes: 0, close: () => void server.close() };
  server.listen(path);
  await once(server, 'listening');
  return sink;
}

function receiptOf(size: number): string {
  const hasher = new Blake3Hasher();
  for (let at = 0; at < size; at += CHUNK.length) hasher.update(CHUNK);
  const durability = { fsynced: false, copies: 1, target: 1 };
  return JSON.stringify({ address: `b3:${hasher.digest('hex')}`, size, durability });
}

async function startInterop(sink: Sink): Promise<{ interop: ServiceProcess; token: string }> {
  const key_file = join(dir, 'keys');
  const { signal } = new AbortController();
  await using keys = await FileKeySource.open({ path: key_file }, signal);
  const claim = {
    audience: 'passport',
    scopes: ['passport:exchange'],
    subject: 'svc-interop',
    ttl_ms: 7_200_000,
  } as const;
  const own = join(dir, 'passport.cap');
  writeFileSync(own, (await mint(keys, claim, signal)).token, { mode: 0o600 });
  chmodSync(own, 0o600);
  const passport_socket = join(dir, 'run', 'passport.sock');
  const common = ['--server.bind=127.0.0.1:0', '--amnesia.enabled=true', `--auth.key_file=${key_file}`];
  const passport = await startService('passport', {}, [...common, `--server.socket=${passport_socket}`]);
  children.push(passport.child);
  const interop = await startService('interop', {}, [
    ...common,
    `--auth.passport_url=unix:${passport_socket}`,
    `--interop.storage_url=unix:${sink.path}`,
    `--interop.passport_capability_file=${own}`,
    '--server.inflight_per_ip=128',
  ]);
  children.push(interop.child);
  // Of the node itself: interop need not know the revocations yet.
  const client = { audience: 'interop', scopes: ['interop:put'], subject: 'root', ttl_ms: 7_200_000 } as const;
  return { interop, token: (await mint(keys, client, signal)).token };
}

/** Sends one body and returns the answer. */
async function sendBody(port: number, token: string, size = BODY_BYTES): Promise<string> {
  const socket = connect({ port, host: '127.0.0.1' });
  let answer = '';
  let wake = (): void => undefined;
  socket.on('data', (text) => (answer += String(text)));
  // A refusal may close the connection while the body is still being sent.
  socket.on('error', () => undefined);
  for (const event of ['drain', 'close']) socket.on(event, () => wake());
  const headers = `Host: localhost\r\nAuthorization: Bearer ${token}\r\nContent-Length: ${size}\r\nConnection: close\r\n`;
  socket.write(`POST /put HTTP/1.1\r\n${headers}\r\n`);
  for (let at = 0; at < size && !socket.destroyed; at += CHUNK.length)
    if (!socket.write(CHUNK)) await new Promise<void>((resolve) => (wake = resolve));
  while (!socket.destroyed) await new Promise<void>((resolve) => (wake = resolve));
  return answer;
}

const total_bytes = STREAMS * BODY_BYTES;
mkdirSync(join(dir, 'run'), { mode: 0o700 });
const sink = await startSink(join(dir, 'run', 'storage.sock'));
try {
  const { interop, token } = await startInterop(sink);
  for (let at = 0; at < WARM_BODIES; at++) await sendBody(interop.port, token, WARM_BYTES);
  let [warm_bytes, peak_bytes] = [0, 0];
  const timer = setInterval(() => {
    if (sink.bytes < total_bytes / 10) return;
    const now_bytes = ownMemory_bytes(interop.pid);
    if (warm_bytes === 0) warm_bytes = now_bytes;
    peak_bytes = Math.max(peak_bytes, now_bytes);
  }, SAMPLE_MS);
  const before_us = cpu_us(interop.pid);
  const began_ms = performance.now();
  const statuses = await Promise.all(
    Array.from({ length: STREAMS }, async (_, at) => {
      await sleep(at * START_MS);
      return await sendBody(interop.port, token);
    }),
  );
  const took_s = (performance.now() - began_ms) / 1000;
  clearInterval(timer);
  const refused = statuses.find((status) => !status.startsWith('HTTP/1.1 201'));
  if (refused !== undefined) process.stdout.write(`a body was refused: ${refused}\n`);
  const stored = statuses.filter((status) => status.startsWith('HTTP/1.1 201')).length;
  const cpu_per_mib_us = (cpu_us(interop.pid) - before_us) / (total_bytes / MIB);
  const grown_mib = (peak_bytes - warm_bytes) / MIB;
  const rows = [
    ['bodies stored', `${stored} of ${STREAMS}`, `${STREAMS}`],
    ['memory after a tenth', `${(warm_bytes / MIB).toFixed(0)} MiB`, ''],
    ['growth until the end, peak', `${grown_mib.toFixed(0)} MiB`, `< ${BAR_MIB} MiB`],
    ['CPU of interop', `${cpu_per_mib_us.toFixed(0)} us/MiB`, ''],
    ['rate in all', `${(total_bytes / MIB / took_s).toFixed(0)} MiB/s`, ''],
  ];
  const title = `# ${STREAMS} streams of ${BODY_BYTES / MIB} MiB through interop`;
  process.stdout.write(`${title}\n\n${machineLine()}\n\n${table(['measured', 'value', 'bar'], rows)}\n`);
  writeJson(
    'interop-put',
    JSON.stringify({ name: 'interop-put', quick, stored, warm_bytes, peak_bytes, cpu_per_mib_us, took_s }),
  );
  if (stored < STREAMS || grown_mib >= BAR_MIB) process.exitCode = 1;
} finally {
  for (const child of children) child.kill('SIGKILL');
  sink.close();
  rmSync(dir, { recursive: true, force: true });
}
