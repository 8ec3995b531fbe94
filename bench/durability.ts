/**
 * The cost of several volumes: reads with a missing shard, writes of two copies, Reed-Solomon, and repair plans over ten
 * million chunks.
 *
 * The service runs in this process and the load generator in another. Comparisons alternate between the two variants, and
 * use the CPU time of this process where CPU is the limit.
 * `node bench/durability.ts [code] [get] [put] [walk]` runs some of the parts.
 */
import { execFileSync, fork } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { cpSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { blake3 } from '@napi-rs/blake-hash';
import { mint } from '@ron/auth';
import { PlaceIndex, RecordType, RunIndex, type Applied, type Volume } from '@ron/cas';
import { Planner, RepairQueue, VolumeSet } from '@ron/durability';
import { whileAbsent } from '@ron/durability/testing';
import { createLog, Metrics } from '@ron/telemetry';
import { loadConfig } from '@ron/config';
import { realFileSystem } from '@ron/log';
import { Stripe } from '@ron/simd';
import { schema, startStorage, type Storage } from '@ron/storage';
import type { LoadOrder, LoadReport } from './http-load.ts';
import { machineLine, median, quick, scratchDir, table } from './lib.ts';

const KIB = 1024;
const MIB = KIB * KIB;
const ROUNDS = quick ? 3 : 7;
const CHUNKS = quick ? 500_000 : 10_000_000;
const MISSING = 1000;
const { signal } = new AbortController();
const SELF = fileURLToPath(import.meta.url);

const verdict = (isMet: boolean): string => (isMet ? 'pass' : 'FALLS SHORT');
const spread = (values: readonly number[], digits = 2): string =>
  `${Math.min(...values).toFixed(digits)} .. ${Math.max(...values).toFixed(digits)}`;

/** The measured services, their load generator and their directory. */
class Bench implements AsyncDisposable {
  readonly dir: string;
  readonly #load = fork(fileURLToPath(new URL('./http-load.ts', import.meta.url)));
  readonly #services: Storage[] = [];

  constructor(dir: string) {
    this.dir = dir;
    this.#load.once('exit', () => this.#load.emit('message', { error: 'the load generator exited' }));
  }

  async start(name: string, dirs: number, ...flags: string[]): Promise<Served> {
    const data_dirs = Array.from({ length: dirs }, (_, index) => join(this.dir, name, String(index)));
    const config = loadConfig({
      schema,
      flags: [
        '--server.bind=127.0.0.1:0',
        `--data_dirs=${data_dirs.join(',')}`,
        '--storage.cache_bytes=1MiB',
        ...flags,
      ],
    });
    const log = createLog({ service: 'storage', sink: { write: () => undefined } });
    const storage = await startStorage({ config, metrics: new Metrics('storage'), log });
    this.#services.push(storage);
    const wanted = { audience: 'storage', scopes: ['storage:put'], ttl_ms: 3_600_000 } as const;
    const { token } = await mint(storage.keys, wanted, signal);
    return { storage, port: Number(new URL(storage.url).port), authorization: `Bearer ${token}` };
  }

  async run(order: LoadOrder): Promise<LoadReport> {
    const answered = once(this.#load, 'message');
    this.#load.send(order);
    const [answer] = (await answered) as [LoadReport & { error?: string }];
    if (answer.error !== undefined) throw new Error(answer.error);
    return answer;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#load.kill();
    for (const storage of this.#services) await storage[Symbol.asyncDispose]();
    rmSync(this.dir, { recursive: true });
  }
}

interface Served {
  readonly storage: Storage;
  readonly port: number;
  readonly authorization: string;
}

interface Measured {
  readonly cpu_us: number;
  readonly rate: number;
}

/** Reads objects of one full stripe, first complete and then with a missing data shard. */
async function degradedGet(bench: Bench): Promise<string[][]> {
  const flags = ['--durability.ec=true', '--durability.replication_factor=1', '--storage.fast_path=false'];
  const { storage, port, authorization } = await bench.start('ec', 9, ...flags);
  const { engine, maintenance } = storage;
  const addresses: string[] = [];
  for (let index = 0; index < 96; index++) {
    const bytes = randomBytes(6 * 64 * KIB);
    const address = `b3:${blake3(bytes).toString('hex')}`;
    const answer = await fetch(`${storage.url}/o/${address}`, {
      method: 'PUT',
      body: bytes,
      headers: { authorization },
    });
    if (!answer.ok) throw new Error(await answer.text());
    await answer.body?.cancel();
    addresses.push(address);
  }
  maintenance.pacing.setRate(1024 * MIB);
  const made = await maintenance.striper!.run(signal);
  if (made.stripes !== addresses.length) throw new Error(JSON.stringify(made));
  // The lost volume holds a data shard of each measured object.
  const { set } = engine.volumes;
  const lost = set.members[0]!;
  const struck = new Set<string>();
  await set.stripes.walk(signal, ({ layout }) => {
    const data = layout?.shards.slice(0, layout.data_shards) ?? [];
    // A copy from before the stripe may still exist on another volume.
    const isOnlyThere = (id: Uint8Array): boolean =>
      set.members.every((member) => member.holds('content', id) === (member === lost));
    if (data.some((shard) => isOnlyThere(shard.id))) struck.add(Buffer.from(data[0]!.id).toString('hex'));
  });
  const chosen: string[] = [];
  for (const address of addresses) {
    const { chunks } = (await (await fetch(`${storage.url}/o/${address}/manifest`)).json()) as { chunks: string[] };
    if (chunks.some((id) => struck.has(id.replace('b3:', '')))) chosen.push(address);
  }
  if (chosen.length < 8) throw new Error(`only ${chosen.length} objects have a missing shard`);
  const request = chosen.map((address) => `GET /o/${address} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`);
  const measure = async (): Promise<Measured> => {
    const requests = quick ? 200 : 600;
    const before = process.cpuUsage();
    const { seconds } = await bench.run({ port, request, connections: 8, requests });
    const { user, system } = process.cpuUsage(before);
    return { cpu_us: (user + system) / requests, rate: requests / seconds };
  };
  // No repair during the measurement.
  maintenance.pacing.setRate(0);
  const healthy: Measured[] = [];
  const degraded: Measured[] = [];
  for (let round = -1; round < ROUNDS; round++) {
    for (const [away, into] of [[[], healthy] as const, [[lost], degraded] as const]) {
      const measured = await whileAbsent(away, measure);
      if (round >= 0) into.push(measured);
    }
  }
  return (['rate', 'cpu_us'] as const).map((what) => {
    const [whole, missing] = [healthy.map((each) => each[what]), degraded.map((each) => each[what])];
    const share = what === 'rate' ? median(missing) / median(whole) : median(whole) / median(missing);
    const shown = (values: readonly number[]): string =>
      `${median(values).toFixed(0)} ${what === 'rate' ? '/s' : 'us CPU'} (${spread(values, 0)})`;
    const name = `GET 384 KiB, EC 6+3, a data shard missing, by ${what === 'rate' ? 'rate' : 'CPU'}`;
    return [name, shown(missing), shown(whole), share.toFixed(2), '>= 0.5x', verdict(share >= 0.5)];
  });
}

/** Compares writes of two copies on two directories with one copy on one directory. */
async function twoCopies(bench: Bench, bytes: number, connections: number, count: number): Promise<string[]> {
  const name = `put${bytes}`;
  const one = await bench.start(`${name}-1`, 1);
  const two = await bench.start(`${name}-2`, 2, '--durability.replication_factor=2');
  const requests = Math.round(count * (quick ? 0.25 : 1));
  const rateOf = async ({ port, authorization }: Served): Promise<number> => {
    const report = await bench.run({ port, puts: { bytes, authorization }, connections, requests });
    return report.requests / report.seconds;
  };
  const pairs: [number, number][] = [];
  for (let round = -1; round < ROUNDS; round++) {
    const pair: [number, number] = [await rateOf(two), await rateOf(one)];
    if (round >= 0) pairs.push(pair);
  }
  const ratios = pairs.map(([mine, theirs]) => mine / theirs);
  const shown = (values: readonly number[]): string => `${median(values).toFixed(0)} /s (${spread(values, 0)})`;
  return [
    `PUT ${bytes / KIB} KiB, ${connections} clients, two copies on two directories`,
    shown(pairs.map(([mine]) => mine)),
    shown(pairs.map(([, theirs]) => theirs)),
    `${median(ratios).toFixed(2)} (${spread(ratios)})`,
    '>= 0.6x',
    verdict(median(ratios) >= 0.6),
  ];
}

function reedSolomon(): string[] {
  const shard_bytes = 64 * KIB;
  const stripe = new Stripe(6, 3, shard_bytes);
  for (let index = 0; index < 6; index++) stripe.set(index, randomBytes(shard_bytes), shard_bytes);
  const rates: number[] = [];
  for (let round = -1; round < 9; round++) {
    const calls = 2000;
    const before = process.cpuUsage();
    for (let call = 0; call < calls; call++) stripe.encode(shard_bytes);
    const { user, system } = process.cpuUsage(before);
    if (round >= 0) rates.push((calls * 6 * shard_bytes) / ((user + system) * 1000));
  }
  const rate = median(rates);
  return [
    'Reed-Solomon encode 6+3, bytes of data for each second of CPU',
    `${rate.toFixed(2)} GB/s (${spread(rates)})`,
    '',
    '',
    '>= 4 GB/s',
    verdict(rate >= 4),
  ];
}

/** The id of chunk `index`: ascending, uniformly distributed, otherwise like a hash. */
function idOf(index: number, into: Buffer): Buffer {
  into.writeUInt32BE(Math.floor((index * 2 ** 32) / CHUNKS), 0);
  let state = (index + 1) >>> 0;
  for (let at = 4; at < 32; at += 4) {
    state = Math.imul(state ^ (state >>> 15), 0x85ebca6b) ^ (state >>> 13);
    into.writeUInt32BE(state >>> 0, at);
    state = (state + 0x9e3779b9) >>> 0;
  }
  return into;
}

async function openPlaces(path: string): Promise<PlaceIndex> {
  return new PlaceIndex({ runs: await RunIndex.open({ fs: realFileSystem, dir: path }) });
}

const appliedTo = (seq: number) => (): Applied => ({ position: { segment: 1, offset: 0 }, seq });

/** An index of ten million chunks. */
async function fillIndex(path: string): Promise<void> {
  await using index = await openPlaces(path);
  const id = Buffer.alloc(32);
  for (let at = 0; at < CHUNKS; at++) {
    const place = { segment: 1, offset: 0, payload_bytes: 65_536, meta_bytes: 0, type: RecordType.chunk };
    index.set('content', idOf(at, id), { ...place, seq: at + 1, time_s: 1 });
    if (index.isFull || at + 1 === CHUNKS) await index.flush(appliedTo(at + 1));
  }
  await index.runs.merged();
}

/** Copies the index and removes `MISSING` chunks from the copy. */
async function copyIndex(from: string, to: string): Promise<void> {
  cpSync(from, to, { recursive: true });
  await using index = await openPlaces(to);
  const id = Buffer.alloc(32);
  const step = Math.floor(CHUNKS / MISSING);
  for (let at = 0; at < MISSING; at++) index.remove('content', idOf(at * step, id));
  await index.flush(appliedTo(CHUNKS + 1));
}

/** A volume that consists of an index only, which is all that a plan reads. */
function indexVolume(name: string, index: PlaceIndex): Volume {
  const typeOf = (kind: string, id: Uint8Array): number | undefined =>
    kind === 'content' ? index.tag('content', id)?.type : undefined;
  const unused = (): never => {
    throw new Error('a plan does not call this');
  };
  return {
    id: name,
    name,
    domain: name,
    state: { condition: 'ok', reason: '' },
    isDoneWithPayloads: true,
    put: () => Promise.resolve(),
    sync: () => Promise.resolve(),
    get: () => Promise.resolve(undefined),
    getMany: unused,
    has: (kind, id) => typeOf(kind, id) !== undefined,
    isDurable: (kind, id) => typeOf(kind, id) !== undefined,
    typeOf,
    putTime_s: unused,
    held: async (kind, id) => {
      const place = kind === 'content' ? await index.get('content', id) : undefined;
      return place && { id, type: place.type, payload_bytes: place.payload_bytes, put_s: place.time_s };
    },
    isPinned: () => false,
    wasRemoved: () => false,
    listIds: (kind, after, into) => (kind === 'content' ? index.ids('content', after, into) : Promise.resolve(0)),
    inventory: () => Promise.resolve([]),
    reclaim: unused,
    stats: () => ({ used_bytes: 0, segments: 0, contents: 0 }),
    close: () => index.close(),
    [Symbol.asyncDispose]: () => index.close(),
  };
}

interface Planned {
  readonly took_ms: number;
  readonly cpu_ms: number;
  readonly deficit: number;
  readonly records: number;
  readonly extra_mib: number;
}

/** Private memory of the process, without mapped file pages. */
const anonymous_mib = (): number =>
  Number(/RssAnon:\s+(\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))![1]) / KIB;

async function planPart(dir: string): Promise<Planned> {
  const volumes = await Promise.all(
    ['a', 'b'].map(async (name) => indexVolume(name, await openPlaces(join(dir, name)))),
  );
  const members = volumes.map((volume) => ({ volume }));
  const set = await VolumeSet.open({ members, replication_factor: 2, signal });
  const queue = new RepairQueue();
  const planner = new Planner({ set, queue });
  const working = (async () => {
    for (let job = await queue.take(signal); job !== undefined; job = await queue.take(signal)) queue.done(job);
  })();
  const before_mib = anonymous_mib();
  let most_mib = before_mib;
  const sampler = setInterval(() => (most_mib = Math.max(most_mib, anonymous_mib())), 20);
  const began = performance.now();
  const before = process.cpuUsage();
  const { deficit, records } = await planner.plan(signal);
  const { user, system } = process.cpuUsage(before);
  const took_ms = performance.now() - began;
  const cpu_ms = (user + system) / 1000;
  clearInterval(sampler);
  most_mib = Math.max(most_mib, anonymous_mib());
  queue.close();
  await working;
  await set.close();
  return { took_ms, cpu_ms, deficit, records, extra_mib: most_mib - before_mib };
}

async function planning(dir: string): Promise<string[][]> {
  await fillIndex(join(dir, 'a'));
  await copyIndex(join(dir, 'a'), join(dir, 'b'));
  const planned: Planned[] = [];
  for (let round = 0; round < 3; round++) {
    planned.push(
      JSON.parse(
        execFileSync(process.execPath, [SELF, 'plan', dir, ...(quick ? ['--quick'] : [])], { encoding: 'utf8' }),
      ),
    );
  }
  for (const { deficit, records } of planned) {
    if (deficit !== MISSING || records !== CHUNKS) throw new Error(JSON.stringify(planned));
  }
  const times = planned.map((each) => each.cpu_ms / 1000);
  const walls = planned.map((each) => each.took_ms / 1000);
  const memory = planned.map((each) => each.extra_mib);
  const what = `a plan over ${CHUNKS.toLocaleString('en')} chunks with two copies, ${MISSING} missing`;
  return [
    [
      what,
      `${median(walls).toFixed(2)} s wall-clock time (${spread(walls)})`,
      `${median(times).toFixed(2)} s CPU`,
      '',
      '< 10 s',
      verdict(median(walls) < 10),
    ],
    [
      'its memory',
      `${median(memory).toFixed(0)} MiB more (${spread(memory, 0)})`,
      '',
      '',
      '< 200 MiB',
      verdict(median(memory) < 200),
    ],
  ];
}

if (process.argv[2] === 'plan') {
  process.stdout.write(JSON.stringify(await planPart(process.argv[3]!)));
} else {
  await using bench = new Bench(scratchDir('durability'));
  const lines: string[][] = [];
  const add = (...measured: string[][]): void => {
    lines.push(...measured);
    for (const line of measured) process.stdout.write(`${line.join(' | ')}\n`);
  };
  const parts = process.argv.slice(2).filter((argument) => !argument.startsWith('-'));
  const isWanted = (part: string): boolean => parts.length === 0 || parts.includes(part);
  if (isWanted('code')) add(reedSolomon());
  if (isWanted('get')) add(...(await degradedGet(bench)));
  if (isWanted('put')) add(await twoCopies(bench, 4 * KIB, 64, 6000));
  if (isWanted('put')) add(await twoCopies(bench, 256 * KIB, 16, 400));
  if (isWanted('walk')) add(...(await planning(join(bench.dir, 'plan'))));
  const head = ['measured', 'this', 'compared with', 'ratio', 'bar', 'verdict'];
  process.stdout.write(`\n# Durability${quick ? ' (quick)' : ''}\n\n${machineLine()}\n\n${table(head, lines)}\n`);
}
