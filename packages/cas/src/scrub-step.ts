/**
 * Reads everything that a volume keeps, a stretch at a time, and sees to what is damaged.
 *
 * First the log, every byte of it: each record that the index leads to has to check, and content to have the hash that it
 * is found by. Then the index, whose entries must not lead to where nothing is. A mark (a pin, a removal) that rotted is
 * written anew from what the index knows; anything else is quarantined like by a read, and told, so that others mend it.
 *
 * Promise: begun anew from the cursor of any step, it goes on there. What is written while a pass is under way is left to the
 * next. Bound: `STEP_BYTES` of the log, or `STEP_ENTRIES` of the index, in one step; `GAPS_MAX` damaged stretches are
 * remembered, of more the segments. Cancellation: by the signal, between two reads.
 */
import { blake3 } from '@napi-rs/blake-hash';
import type { Damage, Position, RecordHead, SegmentLog } from '@ron/log';
import type { Place, PlaceIndex, Table } from './place-index.ts';
import { isAt, markAt, placeOfHead, tablesOf } from './record-places.ts';
import { isContent } from './record-types.ts';
import { isInLog } from './recovery.ts';
import { claim } from './stray-records.ts';
import type { Kind, ScrubCursor, ScrubStep } from './volume.ts';

const STEP_BYTES = 1024 * 1024;
const STEP_ENTRIES = 512;
/** What looking at an entry of the index counts as. */
const ENTRY_COST_BYTES = 128;
const GAPS_MAX = 64;
const TABLES: readonly Table[] = ['content', 'object', 'pin', 'stripe', 'shard', 'note'];

export interface ScrubInit {
  log: SegmentLog;
  index: PlaceIndex;
  readonly flush: () => Promise<void>;
  /** Reads a record and, when it is damaged, sees to it and throws. */
  readonly check: (kind: Kind, id: Uint8Array) => Promise<unknown>;
  /** A mark was damaged, and is written anew. */
  readonly onMark: (id: Uint8Array, what: string) => void;
  signal: AbortSignal;
}

/** The next stretch after `from`; undefined when there is none. */
export async function scrubStep(init: ScrubInit, from: ScrubCursor | undefined): Promise<ScrubStep | undefined> {
  const cursor = from ?? { at: [0, 0], end: endOf(init.log), gaps: [] };
  if (cursor.table === undefined) {
    const { log } = init;
    const segment = log.files.numbers().find((each) => each >= cursor.at[0] && each <= cursor.end[0]);
    const offset = segment === cursor.at[0] ? cursor.at[1] : 0;
    if (segment !== undefined) return await new Step(init, cursor).readLog(segment, offset);
    await init.flush();
  }
  const table = TABLES.find((each) => each === cursor.table) ?? TABLES[0]!;
  return cursor.table === '' ? undefined : await new Step(init, cursor).readIndex(table);
}

const endOf = ({ durable: { position } }: SegmentLog): readonly [number, number] => [position.segment, position.offset];

interface Suspect {
  readonly table: Table;
  readonly id: Uint8Array;
  /** Where the index leads to. */
  readonly place: Place;
}

class Step {
  readonly #init: ScrubInit;
  readonly #cursor: ScrubCursor;
  readonly #suspects: Suspect[] = [];
  readonly #faults: { kind: Kind; id: Uint8Array; reason: string }[] = [];
  /** Places of damaged records. */
  readonly #bad = new Set<string>();
  #gaps: ScrubCursor['gaps'];
  #records = 0;

  constructor(init: ScrubInit, cursor: ScrubCursor) {
    this.#init = init;
    this.#cursor = cursor;
    this.#gaps = cursor.gaps;
  }

  async readLog(segment: number, from: number): Promise<ScrubStep> {
    const { log, signal } = this.#init;
    const isLast = segment === this.#cursor.end[0];
    // Of a segment that is sealed since, or was not being written, all counts.
    const end = isLast && this.#cursor.end[1] > 0 ? this.#cursor.end[1] : log.files.durableBytesOf(segment);
    const until = Math.min(from + STEP_BYTES, end);
    const onRecord = (head: RecordHead, at: Position, body: Buffer): void | Promise<void> =>
      this.#visit(head, at, body);
    const onBadBody = (head: RecordHead, offset: number): void => this.#suspectAt(head, { segment, offset });
    const onDamage = (damage: Damage): void => void (damage.what === 'gap' && this.#remember(damage));
    const { tail, hasMore } = await log.scanSegment(segment, onRecord, onDamage, signal, { from, until, onBadBody });
    // Records were here, and the last of them are none any more.
    if (!hasMore && tail < end) this.#remember({ segment, offset: tail, bytes: end - tail });
    await this.#settleAll();
    const at: readonly [number, number] = hasMore && tail < end ? [segment, tail] : [segment + 1, 0];
    return this.#end({ ...this.#cursor, at, gaps: this.#gaps }, Math.max(tail, until) - from);
  }

  async readIndex(table: Table): Promise<ScrubStep> {
    const { after } = this.#cursor;
    const last = this.#lookThrough(table, after === undefined ? undefined : Buffer.from(after, 'hex'));
    await this.#settleAll();
    const next = last === undefined ? { table: TABLES[TABLES.indexOf(table) + 1] ?? '' } : { table, after: last };
    const { at, end, gaps } = this.#cursor;
    return this.#end({ at, end, gaps, ...next }, STEP_ENTRIES * ENTRY_COST_BYTES);
  }

  #end(cursor: ScrubCursor, bytes: number): ScrubStep {
    return { cursor, bytes, records: this.#records, bad: this.#bad.size, faults: this.#faults };
  }

  /** A record that is whole. Its entry in the index should lead here, or to something newer. */
  #visit(head: RecordHead, at: Position, body: Buffer): void | Promise<void> {
    this.#records += 1;
    if (isContent(head.type) && Buffer.compare(blake3(body.subarray(0, head.payload_bytes)), head.id) !== 0) {
      return this.#suspectAt(head, at);
    }
    const here = placeOfHead(head, at);
    for (const table of tablesOf(head.type)) {
      const known = this.#init.index.get(table, head.id);
      if (isAt(known, at.segment, at.offset) && known!.payload_bytes === head.payload_bytes) continue;
      // What compaction has forgotten is still in the log, for a while.
      if (known === undefined ? table === 'content' : known.seq > head.seq) continue;
      return this.#claim(head, here);
    }
    return undefined;
  }

  /** The index knows nothing as good as this record: it is led here. */
  async #claim(head: RecordHead, here: Place): Promise<void> {
    const { log, index } = this.#init;
    const init = { log, index, isNeeded: () => true, pace: () => Promise.resolve() };
    for (const table of tablesOf(head.type)) {
      const known = index.get(table, head.id);
      if (isAt(known, here.segment, here.offset)) index.set(table, head.id, here);
      else if (known !== undefined || table !== 'content') await claim(init, table, head, here);
    }
  }

  /** The record here is damaged: that matters when the index leads to it. */
  #suspectAt(head: RecordHead, { segment, offset }: Position): void {
    for (const table of tablesOf(head.type)) {
      const place = this.#init.index.get(table, head.id);
      if (place !== undefined && isAt(place, segment, offset)) this.#suspects.push({ table, id: head.id, place });
    }
  }

  /** Damage in a header hides what it is: the entries of the index that lead into it are seen to when those are read. */
  #remember({ segment, offset, bytes }: Omit<Damage, 'what'>): void {
    this.#gaps = [...this.#gaps, [segment, offset, bytes]];
    if (this.#gaps.length <= GAPS_MAX) return;
    const segments = new Set(this.#gaps.map(([each]) => each));
    this.#gaps = [...segments].map((each) => [each, 0, Number.MAX_SAFE_INTEGER]);
  }

  /** The last id when there are more. */
  #lookThrough(table: Table, after: Uint8Array | undefined): string | undefined {
    const { log, index } = this.#init;
    let count = 0;
    for (const [id, stored] of index.entries(table, after)) {
      // What was set since it was stored counts.
      const place = index.get(table, id) ?? stored;
      const isDoubtful = place.isDamaged === true || !isInLog(log, place) || this.#isInGap(place);
      if (isDoubtful) this.#suspects.push({ table, id: Uint8Array.from(id), place });
      if (++count === STEP_ENTRIES) return Buffer.from(id).toString('hex');
    }
    return undefined;
  }

  #isInGap({ segment, offset }: Place): boolean {
    return this.#gaps.some(([each, from, bytes]) => each === segment && offset >= from && offset < from + bytes);
  }

  async #settleAll(): Promise<void> {
    for (const suspect of this.#suspects) {
      this.#init.signal.throwIfAborted();
      await this.#settle(suspect);
    }
  }

  async #settle({ table, id, place }: Suspect): Promise<void> {
    const { index, check, signal } = this.#init;
    // It may have been moved or stored anew meanwhile.
    if (!isAt(index.get(table, id), place.segment, place.offset)) return;
    try {
      if (markAt(table, id, place) !== undefined) await this.#rewrite({ table, id, place });
      else if (table !== 'pin') await check(table, id);
    } catch (error) {
      signal.throwIfAborted();
      this.#count(table, place);
      const reason = error instanceof Error ? error.message : String(error);
      // A stripe is told by its own id.
      if (table !== 'pin' && table !== 'shard') this.#faults.push({ kind: table, id, reason });
    }
  }

  /** Each record once, however many entries lead to it. */
  #count(table: Table, place: Place): void {
    // A damaged object stays in the index: it was counted when its record was read, or as a content.
    const isKnown = this.#cursor.table !== undefined && place.isDamaged === true && this.#isInGap(place);
    if (table !== 'shard' && !isKnown) this.#bad.add(`${place.segment} ${place.offset}`);
  }

  /** It keeps its number: what was decided later stays so. */
  async #rewrite({ table, id, place }: Suspect): Promise<void> {
    const { log, signal, onMark } = this.#init;
    const mark = markAt(table, id, place)!;
    this.#count(table, place);
    onMark(id, `${table} at segment ${place.segment}, offset ${place.offset}`);
    await log.append([mark], signal);
  }
}
