/**
 * Scrub: reads all data of a volume, a part at a time, and handles damage.
 *
 * First the log, every byte of it: each record that the index leads to must check, and content must have the hash that it
 * is found by. Then the index: no entry may lead to a place without a record. A damaged mark (a pin, a removal) is written
 * again from its index entry; any other record is quarantined as a read would do and reported, so that repair replaces it.
 *
 * Contract: a pass can be resumed from the cursor of any step. Records that are written during a pass are left to the next.
 * Bound: `STEP_BYTES` of the log, or `STEP_ENTRIES` of the index, in one step; `GAPS_MAX` damaged stretches are remembered,
 * of more only the segments. Cancellation: by the signal, between two reads.
 */
import type { Damage, Position, RecordHead, SegmentLog } from '@ron/log';
import { TABLES, type Place, type Table } from '../index/entry.ts';
import type { PlaceIndex } from '../index/place-index.ts';
import { isAt, markAt, tablesOf } from '../index/record-places.ts';
import { isContentOf, isInLog } from './verify-record.ts';
import { isContent } from './record-types.ts';
import type { Kind, ScrubCursor, ScrubStep } from './volume.ts';

const STEP_BYTES = 1024 * 1024;
const STEP_ENTRIES = 512;
/** The cost of an index entry in bytes, for pacing. */
const ENTRY_COST_BYTES = 128;
const GAPS_MAX = 64;

export interface ScrubInit {
  log: SegmentLog;
  index: PlaceIndex;
  readonly flush: () => Promise<void>;
  /** Reads a record and, when it is damaged, quarantines it and throws. */
  readonly check: (kind: Kind, id: Uint8Array) => Promise<unknown>;
  /** A damaged mark is rewritten. */
  readonly onMark: (id: Uint8Array, what: string) => void;
  signal: AbortSignal;
}

/** Scrubs the next part after `from`; undefined at the end. */
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

/** A place that must be checked if the index leads to it. */
interface Suspect extends Position {
  readonly table: Table;
  readonly id: Uint8Array;
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
    // A sealed segment is checked to its end.
    const end = isLast && this.#cursor.end[1] > 0 ? this.#cursor.end[1] : log.files.durableBytesOf(segment);
    const until = Math.min(from + STEP_BYTES, end);
    const onRecord = (head: RecordHead, at: Position, body: Buffer): void => this.#visit(head, at, body);
    const onBadBody = (head: RecordHead, offset: number): void => this.#suspectAt(head, { segment, offset });
    const onDamage = (damage: Damage): void => void (damage.what === 'gap' && this.#remember(damage));
    const { tail, hasMore } = await log.scanSegment(segment, onRecord, onDamage, signal, { from, until, onBadBody });
    // The last records of the segment are no longer valid.
    if (!hasMore && tail < end) this.#remember({ segment, offset: tail, bytes: end - tail });
    await this.#settleAll();
    const at: readonly [number, number] = hasMore && tail < end ? [segment, tail] : [segment + 1, 0];
    return this.#end({ ...this.#cursor, at, gaps: this.#gaps }, Math.max(tail, until) - from);
  }

  async readIndex(table: Table): Promise<ScrubStep> {
    const { after } = this.#cursor;
    const last = await this.#lookThrough(table, after === undefined ? undefined : Buffer.from(after, 'hex'));
    await this.#settleAll();
    const next = last === undefined ? { table: TABLES[TABLES.indexOf(table) + 1] ?? '' } : { table, after: last };
    const { at, end, gaps } = this.#cursor;
    return this.#end({ at, end, gaps, ...next }, STEP_ENTRIES * ENTRY_COST_BYTES);
  }

  #end(cursor: ScrubCursor, bytes: number): ScrubStep {
    return { cursor, bytes, records: this.#records, bad: this.#bad.size, faults: this.#faults };
  }

  /** A record with a valid checksum. */
  #visit(head: RecordHead, at: Position, body: Buffer): void {
    this.#records += 1;
    if (isContent(head.type) && !isContentOf(body.subarray(0, head.payload_bytes), head.id)) this.#suspectAt(head, at);
  }

  /** The record here is damaged: that matters when the index leads to it. */
  #suspectAt(head: RecordHead, { segment, offset }: Position): void {
    for (const table of tablesOf(head.type)) this.#suspects.push({ table, id: head.id, segment, offset });
  }

  /** The type is unknown when the header is damaged: index entries that lead here are checked when the index is read. */
  #remember({ segment, offset, bytes }: Omit<Damage, 'what'>): void {
    this.#gaps = [...this.#gaps, [segment, offset, bytes]];
    if (this.#gaps.length <= GAPS_MAX) return;
    const segments = new Set(this.#gaps.map(([each]) => each));
    this.#gaps = [...segments].map((each) => [each, 0, Number.MAX_SAFE_INTEGER]);
  }

  /** The last id when there are more. */
  async #lookThrough(table: Table, after: Uint8Array | undefined): Promise<string | undefined> {
    const { log, index } = this.#init;
    const { entries, last } = await index.page(table, after, STEP_ENTRIES);
    for (const [id, place] of entries) {
      const isDoubtful = place.isDamaged === true || !isInLog(log, place) || this.#isInGap(place);
      const { segment, offset } = place;
      if (isDoubtful) this.#suspects.push({ table, id: Uint8Array.from(id), segment, offset });
    }
    return last && Buffer.from(last).toString('hex');
  }

  #isInGap({ segment, offset }: Position): boolean {
    return this.#gaps.some(([each, from, bytes]) => each === segment && offset >= from && offset < from + bytes);
  }

  async #settleAll(): Promise<void> {
    for (const suspect of this.#suspects) {
      this.#init.signal.throwIfAborted();
      await this.#settle(suspect);
    }
  }

  async #settle({ table, id, segment, offset }: Suspect): Promise<void> {
    const { index, check, signal } = this.#init;
    using hold = await index.hold(table, id);
    const { place } = hold;
    // It may have been moved or stored again meanwhile, or never have been needed.
    if (place === undefined || !isAt(place, segment, offset)) return;
    try {
      if (markAt(table, id, place) !== undefined) await this.#rewrite(table, id, place);
      else if (table !== 'pin') await check(table, id);
    } catch (error) {
      signal.throwIfAborted();
      this.#count(table, place);
      const reason = error instanceof Error ? error.message : String(error);
      // A stripe is reported by its own id.
      if (table !== 'pin' && table !== 'shard') this.#faults.push({ kind: table, id, reason });
    }
  }

  /** Each record once, however many entries lead to it. */
  #count(table: Table, place: Place): void {
    // A damaged object stays in the index: it was counted when its record was read, or as a content.
    const isKnown = this.#cursor.table !== undefined && place.isDamaged === true && this.#isInGap(place);
    if (table !== 'shard' && !isKnown) this.#bad.add(`${place.segment} ${place.offset}`);
  }

  /** The mark keeps its number, so that a later decision stays in force. The caller holds its entry. */
  async #rewrite(table: Table, id: Uint8Array, place: Place): Promise<void> {
    const { log, signal, onMark } = this.#init;
    this.#count(table, place);
    onMark(id, `${table} at segment ${place.segment}, offset ${place.offset}`);
    await log.append([markAt(table, id, place)!], signal);
  }
}
