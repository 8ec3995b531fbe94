/**
 * A directory of a PMTiles file: entries by ascending tile id, each a run of tiles with one content, or a leaf directory.
 *
 *     count, then as varints: ids (differences), run lengths (0: a leaf), lengths, offsets (0: follows the entry before)
 *
 * Contract: a decoded directory has at least one entry; ids ascend and runs do not overlap; every id lies within the range
 * that the parent gives it, and every range of bytes within its section. Otherwise `validation`. So no lookup can leave the
 * file, return to a directory above, or answer for an id of another directory.
 * Bound: 24 bytes for each entry, and an entry takes at least 4 encoded bytes: 60 MiB for the largest directory.
 * Decoding takes steps of `STEP_ENTRIES`, so that a caller on the event loop can yield between them.
 */
import { RonError, sched } from '@ron/kernel/core';

/** A decoded directory. */
export const DIRECTORY_BYTES_MAX = 10 * 1024 * 1024;
/** An entry has four numbers of at least one byte each. */
const ENTRY_ENCODED_BYTES_MIN = 4;
const ENTRY_BYTES = 24;
/** Numbers that are decoded in one step: below 0.5 ms. */
const STEP_NUMBERS = 16_384;
const UINT32_MAX = 0xffff_ffff;

/** The limits of the entries of a directory. */
export interface DirectoryLimits {
  /** The first id and the id after the last. */
  readonly first_id: number;
  readonly end_id: number;
  readonly leaf_bytes: number;
  readonly tile_bytes: number;
}

const invalid = (problem: string): RonError => new RonError('validation', problem);

export class Directory {
  readonly count: number;
  readonly ids: Float64Array;
  readonly runs: Uint32Array;
  readonly lengths: Uint32Array;
  readonly offsets: Float64Array;
  /** The id after the last that the directory may contain. */
  readonly end_id: number;

  constructor(count: number, end_id: number) {
    this.count = count;
    this.end_id = end_id;
    this.ids = new Float64Array(count);
    this.runs = new Uint32Array(count);
    this.lengths = new Uint32Array(count);
    this.offsets = new Float64Array(count);
  }

  get bytes(): number {
    return this.count * ENTRY_BYTES;
  }

  /** The entry for a tile: its content, or the leaf that may have it. -1: the tile does not exist. */
  find(id: number): number {
    let low = 0;
    let high = this.count - 1;
    while (low <= high) {
      const middle = (low + high) >>> 1;
      if (this.ids[middle]! <= id) low = middle + 1;
      else high = middle - 1;
    }
    // `high` is the last entry that begins at or before the id.
    if (high < 0) return -1;
    const run = this.runs[high]!;
    return run === 0 || id - this.ids[high]! < run ? high : -1;
  }

  /** The id after the last that the leaf of entry `at` may contain. */
  leafEnd(at: number): number {
    return at + 1 < this.count ? this.ids[at + 1]! : this.end_id;
  }
}

/** Decodes a directory; yields to other work of the event loop between steps. */
export async function decodeDirectory(bytes: Uint8Array, limits: DirectoryLimits): Promise<Directory> {
  const steps = decodeSteps(bytes, limits);
  for (let step = steps.next(); ; step = steps.next()) {
    if (step.done === true) return step.value;
    await sched.pause('pack.directory');
  }
}

function* decodeSteps(bytes: Uint8Array, limits: DirectoryLimits): Generator<undefined, Directory, void> {
  const numbers = new Varints(bytes);
  const count = numbers.next();
  if (count === 0) throw invalid('a directory has no entries');
  if (count > numbers.left / ENTRY_ENCODED_BYTES_MIN) {
    throw invalid(`a directory states ${count} entries, more than its ${bytes.length} bytes can hold`);
  }
  const directory = new Directory(count, limits.end_id);
  const columns = [readId, readRun, readLength, readOffset];
  let read = 0;
  for (const column of columns) {
    for (let at = 0; at < count; at++) {
      column(directory, at, numbers, limits);
      if (++read % STEP_NUMBERS === 0) yield undefined;
    }
  }
  if (numbers.left > 0) throw invalid(`a directory has ${numbers.left} bytes after its last entry`);
  return directory;
}

function readId({ ids }: Directory, at: number, numbers: Varints, { first_id, end_id }: DirectoryLimits): void {
  const difference = numbers.next();
  if (at > 0 && difference === 0) throw invalid('a directory has two entries for one tile id');
  const id = at === 0 ? difference : ids[at - 1]! + difference;
  if (id < first_id || id >= end_id) {
    throw invalid(`a directory has the tile id ${id}, outside of its range ${first_id} to ${end_id - 1}`);
  }
  ids[at] = id;
}

function readRun(directory: Directory, at: number, numbers: Varints): void {
  const run = numbers.next();
  if (run > UINT32_MAX) throw invalid(`an entry has a run of ${run} tiles, more than ${UINT32_MAX}`);
  if (directory.ids[at]! + run > directory.leafEnd(at)) {
    throw invalid(`the run of tile id ${directory.ids[at]} overlaps the next entry or leaves its directory`);
  }
  directory.runs[at] = run;
}

function readLength({ ids, lengths }: Directory, at: number, numbers: Varints): void {
  const length = numbers.next();
  if (length === 0 || length > UINT32_MAX) throw invalid(`the entry of tile id ${ids[at]} has ${length} bytes`);
  lengths[at] = length;
}

function readOffset(directory: Directory, at: number, numbers: Varints, limits: DirectoryLimits): void {
  const { ids, runs, lengths, offsets } = directory;
  const value = numbers.next();
  if (value === 0 && at === 0) throw invalid('the first entry of a directory has no offset');
  const offset = value === 0 ? offsets[at - 1]! + lengths[at - 1]! : value - 1;
  const isLeaf = runs[at] === 0;
  const section_bytes = isLeaf ? limits.leaf_bytes : limits.tile_bytes;
  if (offset + lengths[at]! > section_bytes) {
    const what = isLeaf ? 'leaf directories' : 'tile data';
    throw invalid(
      `the entry of tile id ${ids[at]} ends at byte ${offset + lengths[at]!} of the ${what}, beyond their end`,
    );
  }
  offsets[at] = offset;
}

/** Little-endian base-128 numbers, at most 2^53 - 1. */
class Varints {
  readonly #bytes: Uint8Array;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  get left(): number {
    return this.#bytes.length - this.#at;
  }

  next(): number {
    let value = 0;
    for (let factor = 1; ; factor *= 128) {
      const byte = this.#bytes[this.#at++];
      if (byte === undefined) throw invalid('a directory ends within an entry');
      value += (byte & 127) * factor;
      if (!Number.isSafeInteger(value)) throw invalid('a directory has a number above 2^53');
      if (byte < 128) return value;
      if (factor >= 2 ** 56) throw invalid('a directory has a number of more than 9 bytes');
    }
  }
}
