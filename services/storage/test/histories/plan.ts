/**
 * Random histories of a storage server: a profile (directories, copies, lease) and a list of operations.
 *
 * A seed gives the same history on every machine. Operations name contents, uploads and directories by number, and an
 * operation that does not apply when its turn comes (`back` of a directory that is there) does nothing: so any part of
 * a history is a history, and a failing one can be shrunk by leaving operations out.
 */
export interface Profile {
  readonly dirs: number;
  readonly replication_factor: number;
  readonly write_min: number;
  /** Whether chunks become stripes of two data shards and one parity shard. */
  readonly ec: boolean;
  /** How long an object that is not pinned is kept. Undefined: indefinitely. */
  readonly lease_ms: number | undefined;
}

export type Operation =
  | { readonly op: 'put' | 'get' | 'pin' | 'unpin'; readonly content: number }
  | { readonly op: 'upload' | 'head' | 'abandon'; readonly upload: number }
  | { readonly op: 'patch'; readonly upload: number; readonly bytes: number }
  /** `seen`: waits until the server has noticed. */
  | { readonly op: 'away' | 'back'; readonly dir: number; readonly seen: boolean }
  | { readonly op: 'swap'; readonly dirs: readonly [number, number] }
  | { readonly op: 'crash'; readonly during: Crashed; readonly content: number; readonly after_ms: number }
  | { readonly op: 'restart' | 'compact' | 'repair' | 'scrub' }
  /** Waits until every lease has run out, then compacts. */
  | { readonly op: 'expire' };

type Crashed = 'put' | 'compact' | 'repair' | 'patch';

export interface History {
  readonly seed: number;
  readonly profile: Profile;
  readonly operations: readonly Operation[];
}

const KIB = 1024;
const MIB = 1024 * KIB;
export const CHUNK_BYTES = 64 * KIB;
/** The size of each content: below, at and above a chunk, and above a segment of 4 MiB. */
export const CONTENT_BYTES = [100, 4 * KIB, CHUNK_BYTES, CHUNK_BYTES + 1, 300 * KIB, 1536 * KIB, 5 * MIB, 6 * MIB];
/** The size of each upload. */
export const UPLOAD_SIZES = [700 * KIB, 3 * MIB, 5 * MIB];
export const LEASE_MS = 2000;

/** Numbers that are the same for the same seed (mulberry32). */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  below(limit: number): number {
    return Math.floor(this.next() * limit);
  }

  pick<T>(items: readonly T[]): T {
    return items[this.below(items.length)]!;
  }
}

export interface Extent {
  /** Operations after the first puts. */
  readonly operations: number;
  /** Operations that start the server again. */
  readonly restarts_max: number;
}

export function historyOf(seed: number, { operations, restarts_max }: Extent): History {
  const random = new Random(seed * 7919);
  const profile = profileOf(random);
  // Large objects first: their manifests and their chunks lie in different directories.
  const drawn: Operation[] = [6, 7, 4, random.below(CONTENT_BYTES.length)].map((content) => ({ op: 'put', content }));
  const expected = new Expected(profile);
  for (const operation of drawn) expected.follow(operation);
  let restarts = 0;
  while (drawn.length < operations + 4) {
    const operation = operationOf(random, profile);
    if (!expected.applies(operation)) continue;
    const isRestart = operation.op === 'crash' || operation.op === 'restart' || operation.op === 'swap';
    if (isRestart && restarts++ >= restarts_max) continue;
    expected.follow(operation);
    drawn.push(operation);
  }
  return { seed, profile, operations: drawn };
}

/** The state in which operations are drawn, so that most of them do something. */
class Expected {
  readonly #dirs: number;
  readonly #away = new Set<number>();
  readonly #stored = new Set<number>();
  readonly #uploads = new Set<number>();

  constructor({ dirs }: Profile) {
    this.#dirs = dirs;
  }

  applies(operation: Operation): boolean {
    switch (operation.op) {
      case 'get':
      case 'pin':
      case 'unpin':
        return this.#stored.has(operation.content);
      case 'upload':
        return !this.#uploads.has(operation.upload);
      case 'patch':
      case 'head':
      case 'abandon':
        return this.#uploads.has(operation.upload);
      case 'away':
        return !this.#away.has(operation.dir) && this.#away.size + 1 < this.#dirs;
      case 'back':
        return this.#away.has(operation.dir);
      case 'swap':
        return !operation.dirs.some((dir) => this.#away.has(dir));
      case 'put':
      case 'crash':
      case 'restart':
      case 'compact':
      case 'repair':
      case 'scrub':
      case 'expire':
        break;
    }
    return true;
  }

  follow(operation: Operation): void {
    if (operation.op === 'put') this.#stored.add(operation.content);
    if (operation.op === 'upload') this.#uploads.add(operation.upload);
    if (operation.op === 'abandon') this.#uploads.delete(operation.upload);
    if (operation.op === 'away') this.#away.add(operation.dir);
    if (operation.op === 'back') this.#away.delete(operation.dir);
  }
}

function profileOf(random: Random): Profile {
  const dirs = 2 + random.below(4);
  const replication_factor = Math.min(dirs, random.pick([1, 2, 2, 2, 3]));
  const ec = dirs >= 3 && random.below(4) === 0;
  const write_min = random.below(5) === 0 ? 1 : replication_factor;
  return { dirs, replication_factor, write_min, ec, lease_ms: random.below(3) === 0 ? LEASE_MS : undefined };
}

const WEIGHTS: readonly (readonly [Operation['op'], number])[] = [
  ['put', 8],
  ['get', 8],
  ['pin', 4],
  ['unpin', 2],
  ['upload', 5],
  ['patch', 12],
  ['head', 3],
  ['abandon', 1],
  ['away', 20],
  ['back', 12],
  ['swap', 2],
  ['crash', 5],
  ['restart', 4],
  ['compact', 10],
  ['repair', 4],
  ['scrub', 2],
  ['expire', 3],
];
const WEIGHT = WEIGHTS.reduce((sum, [, weight]) => sum + weight, 0);

function operationOf(random: Random, { dirs, lease_ms }: Profile): Operation {
  let left = random.below(WEIGHT);
  const op = WEIGHTS.find(([, weight]) => (left -= weight) < 0)![0];
  const content = random.below(CONTENT_BYTES.length);
  const upload = random.below(UPLOAD_SIZES.length);
  const dir = random.below(dirs);
  switch (op) {
    case 'put':
    case 'get':
    case 'pin':
    case 'unpin':
      return { op, content };
    case 'upload':
    case 'head':
    case 'abandon':
      return { op, upload };
    case 'patch':
      return { op, upload, bytes: random.pick([1, 100_000, CHUNK_BYTES * 5, 2 * MIB, 8 * MIB]) };
    case 'away':
    case 'back':
      return { op, dir, seen: random.below(2) === 0 };
    case 'swap':
      return { op, dirs: [dir, (dir + 1 + random.below(dirs - 1)) % dirs] };
    case 'crash':
      return {
        op,
        during: random.pick(['put', 'put', 'compact', 'repair', 'patch']),
        content,
        after_ms: random.below(60),
      };
    case 'expire':
      return { op: lease_ms === undefined ? 'compact' : 'expire' };
    case 'restart':
    case 'compact':
    case 'repair':
    case 'scrub':
      return { op };
  }
  throw new Error(`no such operation: ${String(op)}`);
}

/** One line for each operation, to read in a failure. */
export function describeOperation(operation: Operation): string {
  const { op, ...rest } = operation;
  const facts = Object.entries(rest).map(([name, value]) => `${name}=${String(value)}`);
  return [op, ...facts].join(' ');
}

export function flagsOf({ replication_factor, write_min, ec, lease_ms }: Profile): string[] {
  return [
    `--durability.replication_factor=${replication_factor}`,
    `--durability.write_min=${write_min}`,
    ...(ec ? ['--durability.ec=true', '--durability.ec_data_shards=2', '--durability.ec_parity_shards=1'] : []),
    ...(lease_ms === undefined ? [] : [`--storage.lease=${lease_ms / 1000}s`]),
    '--durability.repair_interval=1s',
    '--durability.repair_pacing=1GiB/s',
    '--storage.segment_bytes=4MiB',
    '--storage.compact_live_ratio=1',
    '--storage.compact_pacing=1GiB/s',
    '--storage.cache_bytes=1MiB',
    '--storage.fast_path=false',
    '--drain_deadline=5s',
  ];
}

/** Directories that may be away while every acknowledged object is still readable. */
export function tolerance({ write_min, ec }: Profile): number {
  return ec ? Math.min(write_min - 1, 1) : write_min - 1;
}
