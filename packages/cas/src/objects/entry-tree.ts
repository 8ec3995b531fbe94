/**
 * A verified list of manifest entries: the chunks of a page, or the pages of a manifest.
 *
 *     packed entries: id (32) and subtree value (32) each
 *     kept values:    of every 8 entries, of pairs of those, and so on up to the value of all
 *
 * Contract: `verify` succeeds only when the subtree values combine to the expected one, so ids and values that it hands out
 * are proven. Values below the kept ones are computed from at most 8 entries on demand.
 * Bound: `cost_bytes`, which is an eighth more than the packed entries. `verify` combines `TURN_ENTRIES` entries (about
 * 0.3 ms) in one turn of the event loop. Cancellation: by the signal, between two turns.
 */
import { sched } from '@ron/kernel';
import { BLAKE3_BYTES, parentValue, parentValues } from '@ron/simd';

export const ENTRY_BYTES = 2 * BLAKE3_BYTES;

/** A power of two: entries that are combined in one turn of the event loop. */
const TURN_ENTRIES = 1024;
/** Values of 2 ** KEPT_LEVEL entries and more are kept. */
const KEPT_LEVEL = 3;
/** The objects around the bytes. */
const OVERHEAD_BYTES = 1024;

/** A manifest or page that does not match the hash that points to it. */
export class ManifestError extends Error {
  override readonly name = 'ManifestError';
}

export interface ExpectedValue {
  readonly value: Uint8Array;
  /** Whether it is the hash of a whole object: then the last combination is the root of the tree. */
  readonly isRoot: boolean;
}

export class EntryTree {
  readonly #entries: Uint8Array;
  /** Packed values by level, the lowest kept one first; the last has one value. */
  readonly #levels: readonly Uint8Array[];

  private constructor(entries: Uint8Array, levels: readonly Uint8Array[]) {
    this.#entries = entries;
    this.#levels = levels;
  }

  /** Verifies `entries`, which must not change afterwards. */
  static async verify(entries: Uint8Array, expected: ExpectedValue, signal: AbortSignal): Promise<EntryTree> {
    const steps = EntryTree.#build(entries, expected);
    for (;;) {
      const step = steps.next();
      if (step.done === true) return step.value;
      await sched.pause('manifest.verify');
      signal.throwIfAborted();
    }
  }

  /** As `verify`, in one turn of the event loop: for background walks over manifests. */
  static verifyNow(entries: Uint8Array, expected: ExpectedValue): EntryTree {
    const steps = EntryTree.#build(entries, expected);
    for (;;) {
      const step = steps.next();
      if (step.done === true) return step.value;
    }
  }

  static *#build(entries: Uint8Array, expected: ExpectedValue): Generator<void, EntryTree, void> {
    const count = entries.length / ENTRY_BYTES;
    if (!Number.isInteger(count) || count === 0) throw new ManifestError(`an entry list of ${entries.length} bytes`);
    // Turns are aligned to a power of two, so no pair of a level below the kept ones lies in two of them.
    let lowest: Uint8Array = new Uint8Array(Math.ceil(count / 2 ** KEPT_LEVEL) * BLAKE3_BYTES);
    for (let first = 0; first < count; first += TURN_ENTRIES) {
      if (first > 0) yield;
      const values = combined(entries, first, Math.min(TURN_ENTRIES, count - first), KEPT_LEVEL);
      lowest.set(values, (first >> KEPT_LEVEL) * BLAKE3_BYTES);
    }
    const levels = [lowest];
    while (lowest.length > BLAKE3_BYTES) levels.push((lowest = parentValues(lowest)));
    const tree = new EntryTree(entries, levels);
    const value = expected.isRoot ? tree.#root() : levels.at(-1)!;
    if (Buffer.compare(value, expected.value) !== 0) throw new ManifestError('the entries belong to another object');
    return tree;
  }

  get count(): number {
    return this.#entries.length / ENTRY_BYTES;
  }

  /** The memory that it holds. */
  get cost_bytes(): number {
    return this.#levels.reduce((sum, level) => sum + level.length, this.#entries.length + OVERHEAD_BYTES);
  }

  /** A view; valid as long as the tree is referenced. */
  idAt(index: number): Uint8Array {
    const at = index * ENTRY_BYTES;
    return this.#entries.subarray(at, at + BLAKE3_BYTES);
  }

  subtreeAt(index: number): Uint8Array {
    const at = index * ENTRY_BYTES + BLAKE3_BYTES;
    return this.#entries.subarray(at, at + BLAKE3_BYTES);
  }

  /** The value of the subtree over `count` entries from `first` on, not at the root. */
  valueOf(first: number, count: number): Uint8Array {
    const level = Math.ceil(Math.log2(count));
    if (level < KEPT_LEVEL) return combined(this.#entries, first, count, level);
    const at = (first >> level) * BLAKE3_BYTES;
    return this.#levels[level - KEPT_LEVEL]!.subarray(at, at + BLAKE3_BYTES);
  }

  #root(): Uint8Array {
    const { count } = this;
    if (count < 2) throw new ManifestError('an entry list of an object has at least two entries');
    const left = 2 ** (Math.ceil(Math.log2(count)) - 1);
    return parentValue(this.valueOf(0, left), this.valueOf(left, count - left), true);
  }
}

/** The subtree values of entries, combined `levels` times. */
function combined(entries: Uint8Array, first: number, count: number, levels: number): Uint8Array {
  const source = Buffer.from(entries.buffer, entries.byteOffset, entries.length);
  let values: Uint8Array = new Uint8Array(count * BLAKE3_BYTES);
  for (let index = 0; index < count; index++) {
    const at = (first + index) * ENTRY_BYTES + BLAKE3_BYTES;
    source.copy(values, index * BLAKE3_BYTES, at, at + BLAKE3_BYTES);
  }
  for (let level = 0; level < levels; level++) values = parentValues(values);
  return values;
}
