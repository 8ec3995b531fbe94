/**
 * Reads of a file in which every byte is checked by the BLAKE3 value of its 64 KiB group.
 *
 * Contract: no byte leaves that does not match the address of the file. The first mismatch, or a file that became shorter, is
 * final: `problem` is set, `onDamage` is called once, and every later read throws `not_ready`. A failing disk throws
 * `not_ready` too, but the next read tries again.
 * Bound: `bytesNow` uses memory that is shared by all reads without waiting. `bytes` allocates the groups of its range.
 * `batches` holds 256 KiB, because clients that do not read hold them. Cancellation: by the signal, between two reads of the
 * disk; the file system of the caller limits the time of each.
 */
import type { Batch } from '@ron/ingress';
import { orAborted, RonError } from '@ron/kernel';
import { diskError, SHARED_BYTES, type File } from '@ron/log';
import { GROUP_BYTES } from '@ron/simd';
import { longStep } from '../../long-steps.ts';
import type { GroupTree } from '../hashes/group-tree.ts';
import { GroupChecks } from './group-checks.ts';
import { PART_BYTES, type PartHashes } from './part-hashes.ts';

const BATCH_GROUPS = 4;
const RETRY_AFTER_MS = 10_000;

export interface VerifiedFileInit {
  readonly file: File;
  readonly tree: GroupTree;
  readonly hashes: PartHashes;
  /** A number that no other pack has. */
  readonly pack: number;
  readonly onDamage: (problem: string) => void;
}

export class VerifiedFile {
  readonly #init: VerifiedFileInit;
  readonly #checks: GroupChecks;
  readonly #size: number;
  #problem: string | undefined;

  constructor(init: VerifiedFileInit) {
    this.#init = init;
    this.#checks = new GroupChecks(init.tree, init.hashes, init.pack);
    this.#size = init.tree.size;
  }

  /** Why the file is not read any more. */
  get problem(): string | undefined {
    return this.#problem;
  }

  /** Throws `not_ready` after a mismatch. */
  requireSound(): void {
    if (this.#problem === undefined) return;
    throw new RonError('not_ready', `the pack is damaged: ${this.#problem}`, { retry_after_ms: RETRY_AFTER_MS });
  }

  /**
   * The bytes, if they are in the page cache and span at most two groups (128 KiB once these were read before); valid until the next read without waiting, of any
   * file. Undefined if the disk has to be read.
   */
  bytesNow(start: number, length: number): Uint8Array | undefined {
    this.requireSound();
    const byParts = this.#checks.areKnown(start, start + length);
    const { from, to } = this.#span(start, start + length, byParts ? PART_BYTES : GROUP_BYTES);
    if (to - from > SHARED_BYTES.length) return undefined;
    const count = this.#init.file.readNow?.(SHARED_BYTES, to - from, from);
    if (count === undefined) return undefined;
    const bytes = SHARED_BYTES.subarray(0, count);
    this.#requireLength(count, to - from);
    if (!byParts) this.#verify(from, bytes);
    else if (!this.#checks.partsMatch(from / PART_BYTES, bytes)) this.#mismatch(from);
    return SHARED_BYTES.subarray(start - from, start - from + length);
  }

  /** The bytes in memory of their own. */
  async bytes(start: number, length: number, signal: AbortSignal): Promise<Uint8Array> {
    const now = this.bytesNow(start, length);
    if (now !== undefined) return Uint8Array.from(now);
    // Not filled with zeros, which takes 2 ms for 10 MiB: the batches fill it.
    const bytes = Buffer.allocUnsafeSlow(length);
    let filled = 0;
    for await (const batch of this.batches(start, start + length, signal)) {
      for (const piece of batch) {
        bytes.set(piece, filled);
        filled += piece.length;
      }
    }
    return bytes;
  }

  /** The bytes from `start` to `end` (exclusive) in pieces of one group; a batch is valid until the next one is requested. */
  async *batches(start: number, end: number, signal: AbortSignal): AsyncGenerator<Batch, void, void> {
    if (end <= start) return;
    const { from, to } = this.#span(start, end, GROUP_BYTES);
    const buffer = Buffer.allocUnsafeSlow(Math.min(to - from, BATCH_GROUPS * GROUP_BYTES));
    for (let at = from; at < to; at += buffer.length) {
      const groups = buffer.subarray(0, Math.min(buffer.length, to - at));
      await this.#read(at, groups, signal);
      yield cut(groups, Math.max(0, start - at), Math.min(groups.length, end - at));
    }
  }

  close(): Promise<void> {
    return this.#init.file.close();
  }

  /** Reads whole groups from `position` on and verifies them. */
  async #read(position: number, into: Uint8Array, signal: AbortSignal): Promise<void> {
    this.requireSound();
    signal.throwIfAborted();
    const { file } = this.#init;
    const verified = (count: number): boolean => {
      this.requireSound();
      this.#requireLength(count, into.length);
      this.#verify(position, into);
      return true;
    };
    // [edge I-7] A range in the page cache is read without waiting, but not in one turn of the event loop.
    const isRead = await longStep(into.length, signal, () => {
      const count = file.readNow?.(into, into.length, position);
      return count !== undefined && verified(count);
    });
    if (isRead) return;
    let count: number;
    try {
      // [edge I-5] The caller leaves at once; the read ends by itself, into memory that is not used again.
      count = await orAborted(file.read(into, into.length, position), signal);
    } catch (error) {
      signal.throwIfAborted();
      throw diskError(error);
    }
    await longStep(into.length, signal, () => verified(count));
  }

  #requireLength(count: number, expected_bytes: number): void {
    if (count < expected_bytes) this.#damaged('the file is shorter than when it was mounted');
  }

  /** Throws `not_ready` unless `bytes` are the whole groups from `position` on. */
  #verify(position: number, bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length; at += GROUP_BYTES) {
      const group = (position + at) / GROUP_BYTES;
      if (!this.#checks.groupMatches(group, bytes.subarray(at, at + GROUP_BYTES))) this.#mismatch(position + at);
    }
  }

  #mismatch(position: number): never {
    this.#damaged(`the bytes from ${position} on do not match the address of the pack`);
  }

  #damaged(problem: string): never {
    this.#problem = problem;
    this.#init.onDamage(problem);
    this.requireSound();
    throw new Error('unreachable');
  }

  /** The whole units that cover a range. */
  #span(start: number, end: number, unit_bytes: number): { readonly from: number; readonly to: number } {
    return {
      from: Math.floor(start / unit_bytes) * unit_bytes,
      to: Math.min(this.#size, Math.ceil(end / unit_bytes) * unit_bytes),
    };
  }
}

/** The bytes `from` to `to` of whole groups, in pieces of one group each. */
function cut(groups: Uint8Array, from: number, to: number): Uint8Array[] {
  const pieces: Uint8Array[] = [];
  for (let at = from; at < to;) {
    const end = Math.min(to, Math.floor(at / GROUP_BYTES + 1) * GROUP_BYTES);
    pieces.push(groups.subarray(at, end));
    at = end;
  }
  return pieces;
}
