/**
 * Merges the inventories of several volumes, in order of ids.
 *
 * Contract: each id occurs once, with every volume that holds it. Bound: `PAGE_COUNT` lines of each volume.
 * Cancellation: by the signal, between two pages. A volume whose inventory cannot be read ends the walk with its error,
 * unless `onFailure` handles it: then the walk continues without that volume.
 */
import type { Held, Kind } from '@ron/cas';
import type { Member } from '../membership/member.ts';

const PAGE_COUNT = 2048;

export interface Line {
  readonly held: Held;
  /** Valid until the next line. */
  readonly holders: readonly Member[];
}

export interface MergeInit {
  members: readonly Member[];
  kind: Kind;
  /** Begins after this id. Default: at the beginning. */
  after?: Uint8Array | undefined;
  page_count?: number;
  /** Called when a page has been read. Its result is awaited. Long walks yield to other tasks there. */
  onPage?: () => Promise<void>;
  onFailure?(member: Member, error: unknown): void;
  signal: AbortSignal;
}

class Cursor {
  readonly member: Member;
  #page: readonly Held[] = [];
  #at = 0;
  #after: Uint8Array | undefined;
  #isOver = false;
  /** The first bytes of the current id, as numbers that compare in the same order. */
  high = 0;
  low = 0;

  constructor(member: Member, after: Uint8Array | undefined) {
    this.member = member;
    this.#after = after;
  }

  get held(): Held {
    return this.#page[this.#at]!;
  }

  /** Moves to the next line. True when a page has to be read first. */
  step(): boolean {
    this.#at += 1;
    return !this.#read();
  }

  #read(): boolean {
    const held = this.#page[this.#at];
    if (held === undefined) return false;
    const { id } = held;
    this.high = ((id[0]! << 24) | (id[1]! << 16) | (id[2]! << 8) | id[3]!) >>> 0;
    this.low = ((id[4]! << 24) | (id[5]! << 16) | (id[6]! << 8) | id[7]!) >>> 0;
    return true;
  }

  /** The number of lines read; 0 at the end. */
  async load(kind: Kind, count: number): Promise<number> {
    if (this.#isOver) return 0;
    this.#page = await this.member.volume.inventory(kind, this.#after, count);
    this.#at = 0;
    this.#after = this.#page.at(-1)?.id ?? this.#after;
    this.#isOver = this.#page.length === 0;
    this.#read();
    return this.#page.length;
  }

  /** Negative, zero or positive, like comparing the ids. */
  compare(other: Cursor): number {
    if (this.high !== other.high) return this.high - other.high;
    if (this.low !== other.low) return this.low - other.low;
    return Buffer.compare(this.held.id, other.held.id);
  }
}

/**
 * Calls `visit` for each id. A returned promise is awaited; false ends the walk.
 *
 * Not a generator: generators would take most of the time of a walk over millions of lines.
 */
export async function mergeInventories(
  init: MergeInit,
  visit: (line: Line) => void | false | Promise<void | false>,
): Promise<void> {
  let cursors: Cursor[] = [];
  for (const member of init.members) {
    const cursor = new Cursor(member, init.after);
    if (await load(init, cursor)) cursors.push(cursor);
  }
  const holders: Member[] = [];
  const first: Cursor[] = [];
  while (cursors.length > 0) {
    gatherFirst(cursors, first);
    holders.length = 0;
    for (const cursor of first) holders.push(cursor.member);
    let answer = visit({ held: first[0]!.held, holders });
    if (answer instanceof Promise) answer = await answer;
    if (answer === false) return;
    for (const cursor of first) {
      if (cursor.step() && !(await load(init, cursor))) cursors = cursors.filter((each) => each !== cursor);
    }
  }
}

/** The cursors that are at the smallest id. */
function gatherFirst(cursors: readonly Cursor[], into: Cursor[]): void {
  into.length = 0;
  for (const cursor of cursors) {
    const order = into.length === 0 ? 0 : cursor.compare(into[0]!);
    if (order > 0) continue;
    if (order < 0) into.length = 0;
    into.push(cursor);
  }
}

async function load(init: MergeInit, cursor: Cursor): Promise<boolean> {
  init.signal.throwIfAborted();
  try {
    const lines = await cursor.load(init.kind, init.page_count ?? PAGE_COUNT);
    if (lines > 0) await init.onPage?.();
    return lines > 0;
  } catch (error) {
    init.signal.throwIfAborted();
    if (init.onFailure === undefined) throw error;
    init.onFailure(cursor.member, error);
    return false;
  }
}
