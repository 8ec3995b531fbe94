/**
 * Merges sorted runs: into one run, or into a page of a listing.
 *
 * Contract: of several entries with one id the newest counts. It inherits the range of superseded records from the older
 * ones (entry.ts). Entries that only hide others are dropped when the oldest run is among the sources.
 * Bound: one block of each source in memory; the event loop gets a turn after `SLICE_ENTRIES`, about half a millisecond.
 * Cancellation: `isStopped` is polled between two slices.
 */
import { sched } from '@ron/kernel';
import { ID_BYTES } from '@ron/log';
import { ENTRY_BYTES, placeAt, superseding, TABLE_COUNT, type Place } from './entry.ts';
import { idAt, type Run, type RunWriter } from './run-file.ts';
import { highOf, lowerBound } from './run-keys.ts';

const SLICE_ENTRIES = 512;
/** Entries that a source reads in one go. */
const BLOCK_ENTRIES = 512;

/** A position in a stretch of a run. */
class Source {
  readonly run: Run;
  #index: number;
  readonly #end: number;
  readonly #block_entries: number;
  #block: Buffer = Buffer.alloc(0);
  #block_from = 0;
  /** The first four bytes of the id at hand; Infinity at the end. */
  high: number;

  constructor(run: Run, from: number, to: number, block_entries: number) {
    this.run = run;
    this.#index = from;
    this.#end = to;
    this.#block_entries = block_entries;
    this.high = from < to ? run.keys.high[from]! : Infinity;
  }

  get isAtEnd(): boolean {
    return this.#index >= this.#end;
  }

  /** Whether the entry at hand has been read. */
  get isLoaded(): boolean {
    return this.isAtEnd || this.#at < this.#block.length;
  }

  async load(): Promise<void> {
    this.#block = await this.run.entries(this.#index, Math.min(this.#end, this.#index + this.#block_entries));
    this.#block_from = this.#index;
  }

  get isNone(): boolean {
    return this.run.isNone(this.#index);
  }

  get #at(): number {
    return (this.#index - this.#block_from) * ENTRY_BYTES;
  }

  get place(): Place | undefined {
    return placeAt(this.#block, this.#at);
  }

  get id(): Buffer {
    return idAt(this.#block, this.#at);
  }

  /** Copies the id; by hand, since a call costs more than so few bytes. */
  copyId(into: Buffer, to: number): void {
    const from = this.#at;
    for (let byte = 0; byte < ID_BYTES; byte++) into[to + byte] = this.#block[from + byte]!;
  }

  copyTo(writer: RunWriter, table: number): void {
    writer.copy(table, this.run, this.#index, this.#block, this.#at);
  }

  /** Compares ids that begin with the same four bytes. */
  compareRest(other: Source): number {
    const [mine, theirs] = [this.#at, other.#at];
    for (let byte = 4; byte < 32; byte++) {
      const difference = this.#block[mine + byte]! - other.#block[theirs + byte]!;
      if (difference !== 0) return difference;
    }
    return 0;
  }

  next(): void {
    this.#index += 1;
    this.high = this.#index < this.#end ? this.run.keys.high[this.#index]! : Infinity;
  }
}

/** The newest entry of the lowest id among the sources, which are ordered from newest to oldest. */
interface Step {
  readonly newest: Source;
  /** The same id in older runs. */
  readonly older: Source[];
}

function lowest(sources: readonly Source[], step: { newest: Source; older: Source[] }): boolean {
  let newest: Source | undefined;
  let high = Infinity;
  if (step.older.length > 0) step.older.length = 0;
  for (const source of sources) {
    if (source.high > high || source.isAtEnd) continue;
    const order = source.high < high ? -1 : source.compareRest(newest!);
    if (order > 0) continue;
    if (order === 0) {
      step.older.push(source);
      continue;
    }
    newest = source;
    high = source.high;
    if (step.older.length > 0) step.older.length = 0;
  }
  if (newest === undefined) return false;
  step.newest = newest;
  return true;
}

/** The entry of a step with its inherited range; undefined for "no entry". Contents have no range: they are dropped by need. */
function combined({ newest, older }: Step, table: number): Place | undefined {
  let place = newest.place;
  if (place === undefined || table === 1) return place;
  for (const each of older) {
    // Older than an entry that hides it: dropped on purpose, once none of its records was left.
    if (each.isNone) break;
    place = superseding(place, each.place);
  }
  return place;
}

async function loadAll(sources: readonly Source[]): Promise<void> {
  for (const source of sources) if (!source.isLoaded) await source.load();
}

const areLoaded = (sources: readonly Source[]): boolean => {
  for (const source of sources) if (!source.isLoaded) return false;
  return true;
};

export interface MergeInit {
  /** From newest to oldest, neighbours in age. */
  runs: readonly Run[];
  writer: RunWriter;
  /** The oldest run of the index is among them. */
  hasOldest: boolean;
  isStopped(): boolean;
}

export async function mergeRuns(init: MergeInit): Promise<void> {
  let slice = 0;
  for (let table = 0; table < TABLE_COUNT; table++) {
    const sources = init.runs.map(
      (run) => new Source(run, run.keys.start[table]!, run.keys.start[table + 1]!, BLOCK_ENTRIES),
    );
    const step = { newest: sources[0]!, older: [] as Source[] };
    for (;;) {
      if (!areLoaded(sources)) await loadAll(sources);
      if (!lowest(sources, step)) break;
      addStep(init, step, table);
      step.newest.next();
      for (const each of step.older) each.next();
      if (init.writer.isBlockFull) await init.writer.block();
      if (++slice % SLICE_ENTRIES !== 0) continue;
      await sched.pause('index.merge');
      if (init.isStopped()) throw new Error('the index is being closed');
    }
  }
}

function addStep({ writer, hasOldest }: MergeInit, step: Step, table: number): void {
  const { newest, older } = step;
  if (newest.isNone && hasOldest) return;
  if (newest.isNone || older.length === 0 || table === 1) {
    newest.copyTo(writer, table);
    return;
  }
  writer.add(String.fromCharCode(table) + newest.id.toString('latin1'), combined(step, table));
}

export interface Stretch {
  readonly run: Run;
  readonly from: number;
  readonly to: number;
}

/** The entries of stretches of runs, newest first, merged; entries that hide others come as undefined. */
export async function mergeStretches(
  stretches: readonly Stretch[],
  table: number,
): Promise<[id: Buffer, place: Place | undefined][]> {
  const sources = stretches.map(({ run, from, to }) => new Source(run, from, to, to - from));
  await loadAll(sources);
  const merged: [Buffer, Place | undefined][] = [];
  if (sources.length === 0) return merged;
  const step = { newest: sources[0]!, older: [] as Source[] };
  while (lowest(sources, step)) {
    merged.push([step.newest.id, combined(step, table)]);
    step.newest.next();
    for (const each of step.older) each.next();
  }
  return merged;
}

/** The ids of stretches of runs after `after`, 32 bytes each, as many as fit `into` from `at` on: where they end, and the last. */
export async function copyIds(
  stretches: readonly Stretch[],
  after: Uint8Array | undefined,
  into: Buffer,
  at: number,
): Promise<CopiedIds> {
  const sources = stretches.map(({ run, from, to }) => new Source(run, from, to, to - from));
  await loadAll(sources);
  let end = at;
  if (sources.length === 0) return { end, last: undefined };
  const step = { newest: sources[0]!, older: [] as Source[] };
  const high = after === undefined ? -1 : highOf(after);
  const last = Buffer.alloc(ID_BYTES);
  let hasAny = false;
  while (end + ID_BYTES <= into.length && lowest(sources, step)) {
    const { newest } = step;
    // Ids that begin like `after` may come before it.
    const isAfter = newest.high !== high || newest.id.compare(after!) > 0;
    if (isAfter) hasAny = true;
    newest.copyId(last, 0);
    if (isAfter && !newest.isNone) {
      last.copy(into, end);
      end += ID_BYTES;
    }
    newest.next();
    for (const each of step.older) each.next();
  }
  return { end, last: hasAny ? last : undefined };
}

export interface CopiedIds {
  readonly end: number;
  /** Where to go on; undefined at the end of the table. */
  readonly last: Buffer | undefined;
}

/** For each run the entries that a page needs: up to a common end, so that together they are about `count`. */
export function stretchesOf(
  runs: readonly Run[],
  table: number,
  after: Uint8Array | undefined,
  count: number,
): Stretch[] {
  const high = after === undefined ? 0 : highOf(after);
  const ends = runs.map(({ keys }) => keys.start[table + 1]!);
  const froms = runs.map(({ keys }, at) => lowerBound(keys.high, high, keys.start[table]!, ends[at]!));
  const tos = [...froms];
  let last = -1;
  // Of those that begin like `after` some come before it: they do not count.
  for (let taken = 0; ;) {
    let first = -1;
    for (let at = 0; at < runs.length; at++) {
      if (tos[at]! >= ends[at]!) continue;
      if (first < 0 || runs[at]!.keys.high[tos[at]!]! < runs[first]!.keys.high[tos[first]!]!) first = at;
    }
    if (first < 0) break;
    const next = runs[first]!.keys.high[tos[first]!]!;
    if (taken >= count && next !== last) break;
    if (after === undefined || next !== high) taken += 1;
    last = next;
    tos[first]! += 1;
  }
  return runs.map((run, at) => ({ run, from: froms[at]!, to: tos[at]! })).filter(({ from, to }) => from < to);
}
