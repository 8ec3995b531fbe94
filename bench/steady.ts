/**
 * Storage in steady state: write rate, event loop delay, memory for readers, and the start after a kill.
 *
 * Writes run for longer than several index flushes. `RON_BENCH_BASE=DIR` names another checkout with its own `node_modules`:
 * rounds then alternate between both versions, so that noise of the machine affects both.
 */
import { fork, spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as later } from 'node:timers/promises';
import { blake3 } from '@napi-rs/blake-hash';
import { encodeManifest, encodePage, LocalVolume, RecordType, subtreeOf, type Entry, type NewRecord } from '@ron/cas';
import { formatAddress } from '@ron/proto';
import { combineSubtrees, subtreeValue } from '@ron/simd';
import type { LoadOrder, LoadReport } from './http-load.ts';
import type { Turns } from './loop-watch.ts';
import { callChild, machineLine, median, quick, scratchDir, table } from './lib.ts';
import { cpu_us, ownMemory_bytes, path, startStorage, type Storage } from './servers.ts';

const KIB = 1024;
const MIB = KIB * KIB;
const ROUNDS = quick ? 2 : 5;
const PUTS = quick ? 40_000 : 120_000;
const READERS = 250;
const OBJECTS = quick ? 200 : 2000;
/** One page of a manifest is 4096 chunks of 64 KiB: the page of such an object is half full. */
const OBJECT_BYTES = 128 * MIB;
const CHUNK_BYTES = 64 * KIB;
const CHUNKS = quick ? 500_000 : 10_000_000;
const dir = scratchDir('steady');
const children: ChildProcess[] = [];
const rows: string[][] = [];
const spread = (values: readonly number[], digits = 1): string =>
  `${median([...values]).toFixed(digits)} (${Math.min(...values).toFixed(digits)} .. ${Math.max(...values).toFixed(digits)})`;
const verdict = (isMet: boolean): string => (isMet ? 'pass' : 'FALLS SHORT');

async function server(name: string, root: string, ...flags: string[]): Promise<Storage> {
  const started = await startStorage(join(dir, name), { root, preload: path('./loop-watch.ts') }, ...flags);
  children.push(started.child);
  return started;
}

const load = fork(path('./http-load.ts'));
children.push(load);

const put = (storage: Storage, requests: number): Promise<LoadReport> =>
  callChild<LoadReport>(load, {
    port: storage.port,
    puts: { bytes: 4 * KIB, authorization: storage.authorization },
    connections: 64,
    requests,
  } satisfies LoadOrder);

interface Figures {
  readonly rates: number[];
  readonly p99s: number[];
  readonly costs: number[];
  readonly turns: number[];
}

/** Measures rates and p99 in one run and loop turns in another, because watching turns costs CPU time. */
async function measureWrites(storage: Storage, into: Figures): Promise<void> {
  const before = cpu_us(storage.pid);
  const { requests, seconds, p99_ms } = await put(storage, PUTS);
  into.rates.push(requests / seconds);
  into.p99s.push(p99_ms);
  into.costs.push((cpu_us(storage.pid) - before) / requests);
  await callChild<Turns>(storage.child, 'watch');
  await put(storage, PUTS / 2);
  into.turns.push((await callChild<Turns>(storage.child, 'stop')).longest_turn_ms);
}

async function writes(): Promise<void> {
  const roots = [path('..'), process.env['RON_BENCH_BASE']].filter((root) => root !== undefined);
  const figures = roots.map((): Figures => ({ rates: [], p99s: [], costs: [], turns: [] }));
  const servers = await Promise.all(roots.map((root, at) => server(`writes-${at}`, root)));
  for (const storage of servers) await put(storage, 8000);
  for (let round = 0; round < ROUNDS; round++) {
    for (const [at, storage] of servers.entries()) await measureWrites(storage, figures[at]!);
  }
  for (const [at, { rates, p99s, costs, turns }] of figures.entries()) {
    const who = at === 0 ? '' : ', before';
    const bar = (text: string): string => (at === 0 ? text : '');
    const met = (isMet: boolean): string => (at === 0 ? verdict(isMet) : '');
    rows.push(
      [`PUT 4 KiB, 64 clients, a second${who}`, spread(rates, 0), '', ''],
      [`PUT p99, ms${who}`, spread(p99s), bar('< 12'), met(median(p99s) < 12)],
      [`server CPU per PUT, us${who}`, spread(costs), '', ''],
      [`longest turn of the loop, ms of CPU${who}`, spread(turns), bar('< 5'), met(Math.max(...turns) < 5)],
    );
  }
  const [ours, before] = figures;
  if (before !== undefined) {
    const ratios = ours!.rates.map((rate, at) => rate / before.rates[at]!);
    rows.push(['rate of PUT compared with before', spread(ratios, 2), '>= 1', verdict(median(ratios) >= 1)]);
  }
  for (const storage of servers) await stop(storage);
}

async function stop(storage: Storage): Promise<void> {
  const ended = once(storage.child, 'exit');
  storage.child.kill('SIGTERM');
  await ended;
}

/** Objects that differ only in their first chunk, so that many large ones fit on the disk. Each has its own manifest page. */
async function storeLarge(data: string, count: number): Promise<string[]> {
  const { signal } = new AbortController();
  await using volume = await LocalVolume.open({ dir: data, signal });
  const entryOf = (chunk: Uint8Array, index: number): Entry => ({
    id: blake3(chunk),
    subtree: subtreeValue(chunk, index * CHUNK_BYTES),
  });
  const chunkOf = (payload: Buffer): NewRecord => ({ type: RecordType.chunk, id: blake3(payload), payload });
  const tail: Entry[] = [];
  for (let index = 1; index < OBJECT_BYTES / CHUNK_BYTES; index++) {
    const chunk = randomBytes(CHUNK_BYTES);
    tail.push(entryOf(chunk, index));
    await volume.put([chunkOf(chunk)], signal, 'later');
  }
  const addresses: string[] = [];
  for (let object = 0; object < count; object++) {
    const head = randomBytes(CHUNK_BYTES);
    const entries = [entryOf(head, 0), ...tail];
    const payload = encodePage(entries);
    const subtrees = entries.map((entry) => entry.subtree);
    const page = { id: blake3(payload), subtree: subtreeOf(subtrees) };
    const id = combineSubtrees(subtrees);
    const manifest = encodeManifest({ size: OBJECT_BYTES, chunk_bytes: CHUNK_BYTES, pages: [page] });
    const meta = Buffer.from('application/octet-stream');
    const records = [
      chunkOf(head),
      { type: RecordType.page, id: page.id, payload },
      { type: RecordType.manifest, id, payload: manifest, meta },
    ];
    await volume.put(records, signal, 'later');
    addresses.push(formatAddress(id));
  }
  await volume.sync(signal);
  return addresses;
}

/** A client that sends a request and never reads the answer. Each begins at another offset, so that no two share a chunk. */
async function idleReader(port: number, address: string, from: number): Promise<Socket> {
  const socket = connect(port, '127.0.0.1');
  socket.pause();
  await once(socket, 'connect');
  socket.write(`GET /o/${address} HTTP/1.1\r\nHost: 127.0.0.1\r\nRange: bytes=${from}-\r\n\r\n`);
  return socket;
}

async function memory(): Promise<void> {
  // The small cache is full before the measurement, which ends before the listener closes idle readers.
  const addresses = await storeLarge(join(dir, 'memory'), OBJECTS);
  const read: string[] = [];
  for (let index = 0; index < 4; index++) read.push(...(await storeLarge(join(dir, 'memory'), 1)));
  const storage = await server(
    'memory',
    path('..'),
    '--write_timeout=60s',
    '--max_conns=1000',
    '--server.connection_limit_per_ip=1000',
  );
  await put(storage, 8000);
  await later(4000);
  const before = ownMemory_bytes(storage.pid);
  for (const address of addresses) {
    const answer = await fetch(`http://127.0.0.1:${storage.port}/o/${address}`, { headers: { range: 'bytes=5-5' } });
    await answer.arrayBuffer();
  }
  const objects_mib = (ownMemory_bytes(storage.pid) - before) / MIB;
  const sockets: Socket[] = [];
  for (let index = 0; index < READERS; index++) {
    sockets.push(await idleReader(storage.port, read[index % read.length]!, Math.floor(index / read.length) * 2 * MIB));
  }
  await later(2000);
  const all_mib = (ownMemory_bytes(storage.pid) - before) / MIB;
  for (const socket of sockets) socket.destroy();
  rows.push(
    [`own memory after one byte of each of ${OBJECTS} objects of 128 MiB, MiB`, `+${objects_mib.toFixed(0)}`, '', ''],
    [`and with ${READERS} idle readers, MiB`, `+${all_mib.toFixed(0)}`, '< +48', verdict(all_mib < 48)],
  );
  await stop(storage);
}

/** Kills a volume with many chunks during writes, and probes it during the next start. */
async function start(): Promise<void> {
  const data = join(dir, 'many');
  const fill = spawn(process.execPath, [path('./many-chunks.ts'), 'fill', data, ...(quick ? ['--quick'] : [])]);
  await once(fill, 'exit');
  const storage = await startStorage(data, {});
  children.push(storage.child);
  await put(storage, 20_000);
  const killed = once(storage.child, 'exit');
  storage.child.kill('SIGKILL');
  await killed;
  const begun_ms = performance.now();
  let slowest_ms = 0;
  let answers = 0;
  const over = new AbortController();
  const bind = `127.0.0.1:${storage.port}`;
  const opening = startStorage(data, {}, `--server.bind=${bind}`);
  const probing = (async () => {
    while (!over.signal.aborted) {
      const asked_ms = performance.now();
      const isAnswered = await fetch(`http://${bind}/healthz`).then(
        (answer) => answer.ok,
        () => false,
      );
      if (isAnswered) {
        answers += 1;
        slowest_ms = Math.max(slowest_ms, performance.now() - asked_ms);
      }
      await later(5);
    }
  })();
  const again = await opening;
  children.push(again.child);
  const took_s = (performance.now() - begun_ms) / 1000;
  over.abort();
  await probing;
  const what = `start after kill -9 with ${CHUNKS.toLocaleString('en')} chunks, s (process start included)`;
  rows.push(
    [what, took_s.toFixed(2), '< 5', verdict(took_s < 5)],
    ['slowest /healthz during the start, ms', `${slowest_ms.toFixed(0)} (${answers} answers)`, '', ''],
  );
  await stop(again);
}

const only = process.argv.slice(2).filter((argument) => !argument.startsWith('-'));
const parts = { writes, memory, start };
try {
  for (const [name, run] of Object.entries(parts)) if (only.length === 0 || only.includes(name)) await run();
  process.stdout.write(`${machineLine()}\n\n${table(['measured', 'value', 'bar', 'verdict'], rows)}\n`);
} finally {
  for (const child of children) child.kill('SIGKILL');
  rmSync(dir, { recursive: true, force: true });
}
