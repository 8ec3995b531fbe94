/**
 * Walks over the ids that several volumes hold, in order, and stops only at those that need attention.
 *
 * Contract: each id is visited once, with all volumes that hold it; ids with a common prefix are distinguished.
 * Bound: `PAGE_IDS` ids of each volume, and no object per id, which would dominate the time of a walk over tens of millions.
 * At most 30 volumes. Cancellation: by the signal, between two pages. A volume that cannot be listed is reported, and the
 * walk continues without it.
 */
import type { Kind } from '@ron/cas';
import { assert } from '@ron/kernel';
import type { Member } from '../membership/member.ts';

export const MEMBERS_MAX = 30;
const ID_BYTES = 32;
const PAGE_IDS = 4096;

export interface IdWalkInit {
  members: readonly Member[];
  kind: Kind;
  /** A second kind to look up in the same walk. */
  also?: Kind | undefined;
  /** Begins after this id. Default: at the beginning. */
  after?: Uint8Array | undefined;
  /**
   * Whether nothing has to be done about an id that these volumes hold: bit n stands for the n-th of `members`. `also`: the
   * volumes that hold it as the second kind.
   */
  isFine: (holders: number, also: number) => boolean;
  /** Called for the other ids. A returned promise is awaited. */
  visit: (id: Uint8Array, holders: number, also: number) => void | Promise<void>;
  /** Called after each page. The result is awaited. */
  onPage?: () => Promise<void>;
  onFailure: (member: Member, error: unknown) => void;
  signal: AbortSignal;
}

class Cursor {
  readonly member: Member;
  readonly bit: number;
  readonly isAlso: boolean;
  readonly #kind: Kind;
  readonly page = Buffer.alloc(PAGE_IDS * ID_BYTES);
  readonly words = new Int32Array(this.page.buffer, this.page.byteOffset, (PAGE_IDS * ID_BYTES) / 4);
  #count = 0;
  #at = 0;
  #after: Uint8Array | undefined;
  /** The first eight bytes of the current id, as numbers that compare in the same order. */
  high = 0;
  low = 0;
  /** No other cursor is at a smaller id. */
  isFirst = false;
  isOver = false;

  constructor(member: Member, bit: number, kind: Kind, isAlso: boolean, after: Uint8Array | undefined) {
    this.member = member;
    this.bit = bit;
    this.#kind = kind;
    this.isAlso = isAlso;
    this.#after = after;
  }

  /** Offset of the current id. */
  get offset(): number {
    return this.#at * ID_BYTES;
  }

  get id(): Buffer {
    return this.page.subarray(this.offset, this.offset + ID_BYTES);
  }

  /** Moves to the next id; false when a page has to be read first. */
  step(): boolean {
    this.#at += 1;
    return this.#read();
  }

  /** False at the end. */
  async load(): Promise<boolean> {
    if (this.#count > 0)
      this.#after = Uint8Array.from(this.page.subarray((this.#count - 1) * ID_BYTES, this.#count * ID_BYTES));
    this.#count = await this.member.volume.listIds(this.#kind, this.#after, this.page);
    this.#at = 0;
    return this.#read();
  }

  #read(): boolean {
    if (this.#at >= this.#count) return false;
    const at = this.#at * ID_BYTES;
    const { page } = this;
    this.high = ((page[at]! << 24) | (page[at + 1]! << 16) | (page[at + 2]! << 8) | page[at + 3]!) >>> 0;
    this.low = ((page[at + 4]! << 24) | (page[at + 5]! << 16) | (page[at + 6]! << 8) | page[at + 7]!) >>> 0;
    return true;
  }

  /** Negative, zero or positive, like comparing the ids. */
  compare(other: Cursor): number {
    if (this.high !== other.high) return this.high - other.high;
    if (this.low !== other.low) return this.low - other.low;
    const mine = this.offset / 4;
    const theirs = other.offset / 4;
    for (let word = 2; word < ID_BYTES / 4; word++) {
      if (this.words[mine + word] !== other.words[theirs + word]) return Buffer.compare(this.id, other.id);
    }
    return 0;
  }
}

export async function walkIds(init: IdWalkInit): Promise<void> {
  assert(init.members.length <= MEMBERS_MAX, `a walk is over at most ${MEMBERS_MAX} volumes`);
  const { isFine, visit } = init;
  let cursors = await openAll(init);
  while (cursors.length > 0) {
    let best = cursors[0]!;
    let holders = 0;
    let also = 0;
    for (const cursor of cursors) {
      const order = cursor === best ? 0 : cursor.compare(best);
      cursor.isFirst = order <= 0;
      if (order > 0) continue;
      if (order < 0) {
        // The cursors before it were not at the smallest id.
        for (const before of cursors) if (before !== cursor) before.isFirst = false;
        best = cursor;
        holders = 0;
        also = 0;
      }
      if (cursor.isAlso) also |= cursor.bit;
      else holders |= cursor.bit;
    }
    if (!isFine(holders, also)) {
      const busy = visit(best.id, holders, also);
      if (busy !== undefined) await busy;
    }
    let hasEnded = false;
    for (const cursor of cursors) {
      if (!cursor.isFirst || cursor.step()) continue;
      if (!(await load(init, cursor))) hasEnded = true;
    }
    if (hasEnded) cursors = cursors.filter((cursor) => !cursor.isOver);
  }
}

async function openAll(init: IdWalkInit): Promise<Cursor[]> {
  const cursors: Cursor[] = [];
  for (const [index, member] of init.members.entries()) {
    cursors.push(new Cursor(member, 1 << index, init.kind, false, init.after));
    if (init.also !== undefined) cursors.push(new Cursor(member, 1 << index, init.also, true, init.after));
  }
  for (const cursor of cursors) await load(init, cursor);
  return cursors.filter((cursor) => !cursor.isOver);
}

/** False at the end. */
async function load(init: IdWalkInit, cursor: Cursor): Promise<boolean> {
  init.signal.throwIfAborted();
  try {
    cursor.isOver = !(await cursor.load());
    if (!cursor.isOver) await init.onPage?.();
  } catch (error) {
    init.signal.throwIfAborted();
    cursor.isOver = true;
    init.onFailure(cursor.member, error);
  }
  return !cursor.isOver;
}
