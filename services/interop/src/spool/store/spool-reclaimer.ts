/**
 * Gives back the disk space of settled deliveries, the oldest segment first.
 *
 * Only the oldest segment is removed: a settled record must outlive the deliveries before it. Unread segments are passed over and
 * kept: a delivery in them may be sent again, as a duplicate, if its settled record is removed. Deliveries of the segment that
 * still wait are moved to the end of the log, under their own numbers, before the segment is removed. A segment without any is
 * due at once; otherwise it is due when the log takes half of its room and an eighth of it is settled.
 *
 * Contract: a waiting delivery is durable in the log at every moment. A delivery whose record is damaged is reported and
 * dropped. Bound: one segment at a time, moved in groups of `CHUNK_BYTES`; spool-limits.ts reserves the space of the moves.
 * Cancellation: by the signal, between two groups.
 */
import type { RecordHead, RecordInput, SegmentLog } from '@ron/log';
import { isBadSector, recordBytes, type Position } from '@ron/log';
import { RECORD } from './delivery-record.ts';
import { NONE, type RowPlace, type Slot } from '../state/delivery-table.ts';
import type { SpoolLimits } from './spool-limits.ts';
import type { SpoolState } from '../state/spool-state.ts';
import type { UnreadSegments } from '../../unread-segments.ts';

const CHUNK_BYTES = 1024 * 1024;
/** Of the room: below it, only segments without waiting deliveries are removed. */
const USED_SHARE = 1 / 2;
/** Of the log: settled records that are worth the moves. */
const SETTLED_SHARE = 1 / 8;

/** The context of a record that is moved. */
export class Move {
  readonly id: Uint8Array;
  readonly from: Position;

  constructor(id: Uint8Array, from: Position) {
    this.id = id;
    this.from = from;
  }
}

export interface SpoolReclaimerInit {
  readonly log: SegmentLog;
  readonly state: SpoolState;
  readonly limits: SpoolLimits;
  readonly unread: Pick<UnreadSegments, 'add' | 'has' | 'bytesIn'>;
  /** The disk cannot read a part of a segment: it is unread from now on. */
  readonly onUnread: () => void;
  /** The record of a waiting delivery cannot be moved, because it is damaged. */
  readonly drop: (slot: Slot) => void;
}

export class SpoolReclaimer {
  readonly #init: SpoolReclaimerInit;

  constructor(init: SpoolReclaimerInit) {
    this.#init = init;
  }

  /** Whether a segment should be removed now. */
  get isDue(): boolean {
    const { log, state, limits } = this.#init;
    const oldest = this.#oldest;
    if (oldest === undefined) return false;
    if (oldest !== log.active && state.liveIn(oldest) === 0) return true;
    const bytes = this.#bytes;
    const settled_bytes = bytes - state.live_bytes - state.pending_bytes;
    const worth_bytes = Math.max(limits.segment_bytes, bytes * SETTLED_SHARE);
    return bytes > limits.room_bytes * USED_SHARE && settled_bytes >= worth_bytes;
  }

  /** Removes all segments with records, except unread ones. Nothing waits. */
  async removeAll(signal: AbortSignal): Promise<void> {
    const { state } = this.#init;
    while (state.table.size === 0 && this.#bytes > 0) await this.removeOldest(signal);
  }

  /** Moves the waiting deliveries of the oldest segment to the end of the log, then removes it. */
  async removeOldest(signal: AbortSignal): Promise<void> {
    const { log, state } = this.#init;
    const oldest = this.#oldest;
    if (oldest === undefined) return;
    if (oldest === log.active) {
      log.rotate();
      await log.sync(signal);
    }
    if (state.liveIn(oldest) > 0 && !(await this.#isMoved(oldest, signal))) return;
    if (state.liveIn(oldest) > 0) this.#dropAll(oldest);
    await log.remove(oldest);
  }

  /** False if the disk cannot read a part of the segment. It does not keep the others: it is tried again later. */
  async #isMoved(segment: number, signal: AbortSignal): Promise<boolean> {
    try {
      await this.#moveAll(segment, signal);
      return true;
    } catch (error) {
      if (!isBadSector(error)) throw error;
      this.#init.unread.add(segment);
      this.#init.onUnread();
      return false;
    }
  }

  /** The copy of a delivery is durable. Called in the step of the sync. */
  moved({ id, from }: Move, place: RowPlace): void {
    const { state } = this.#init;
    const slot = state.table.findId(id);
    // If it was settled meanwhile, its settled record follows the copy: both are written by one task.
    if (slot !== NONE && this.#isAt(slot, from)) state.move(slot, place);
  }

  get #oldest(): number | undefined {
    const { log, unread } = this.#init;
    return log.files.numbers().find((segment) => !unread.has(segment));
  }

  /** Of the log without unread segments. */
  get #bytes(): number {
    const { files } = this.#init.log;
    return files.totals().bytes - this.#init.unread.bytesIn(files);
  }

  async #moveAll(segment: number, signal: AbortSignal): Promise<void> {
    const { log, state, limits } = this.#init;
    const chunk_bytes_max = Math.min(CHUNK_BYTES, limits.segment_bytes);
    let chunk: RecordInput[] = [];
    let chunk_bytes = 0;
    const flush = async (): Promise<void> => {
      const records = chunk;
      chunk = [];
      chunk_bytes = 0;
      if (records.length > 0) await log.append(records, signal);
    };
    const add = (head: RecordHead, position: Position, body: Buffer): void => {
      const slot = state.table.findKey(head.id);
      if (slot === NONE || !this.#isAt(slot, position)) return;
      chunk.push(moveOf(head, position, body, Uint8Array.from(state.table.idOf(slot))));
      chunk_bytes += recordBytes(head.payload_bytes, head.meta_bytes);
    };
    const onRecord = (head: RecordHead, position: Position, body: Buffer): void | Promise<void> => {
      if (head.type !== RECORD.delivery) return undefined;
      const bytes = recordBytes(head.payload_bytes, head.meta_bytes);
      if (chunk_bytes + bytes <= chunk_bytes_max) return add(head, position, body);
      // The scan waits, so the body stays valid.
      return flush().then(() => add(head, position, body));
    };
    await log.scanSegment(segment, onRecord, () => undefined, signal);
    await flush();
  }

  #isAt(slot: Slot, { segment, offset }: Position): boolean {
    const place = this.#init.state.table.placeOf(slot);
    return place.segment === segment && place.offset === offset;
  }

  #dropAll(segment: number): void {
    const { state, drop } = this.#init;
    const lost: Slot[] = [];
    for (const queue of state.queues)
      for (let slot = queue.first; slot !== NONE; slot = state.table.nextOf(slot))
        if (state.table.placeOf(slot).segment === segment) lost.push(slot);
    for (const slot of lost) drop(slot);
  }
}

function moveOf(head: RecordHead, from: Position, body: Buffer, id: Uint8Array): RecordInput {
  const copy = Buffer.from(body);
  return {
    type: head.type,
    id: head.id,
    payload: copy.subarray(0, head.payload_bytes),
    meta: copy.subarray(head.payload_bytes),
    seq: head.seq,
    time_s: head.time_s,
    context: new Move(id, from),
  };
}
