/**
 * Opens the log of the spool and replays it into the index.
 *
 * Contract: afterwards the index has each delivery without a settled record, in the order in which it was accepted. A copy that
 * a crash left beside its original counts once. Damage is reported, never skipped silently; the other records survive. A segment
 * with a part that the disk cannot read is unread: `LateReplay` enters its other deliveries later.
 * Bound: as in SegmentLog; `QUEUE_BYTES_MAX` wait while the disk hangs. Overflow: `busy`. Cancellation: by the signal.
 */
import {
  type Appended,
  type Damage,
  type DurableRecord,
  type FileSystem,
  type Position,
  type RecordHead,
  type SegmentLogInit,
  type SegmentLog,
} from '@ron/log';
import { openLog, type LogExtent } from '../../log-extent.ts';
import { sched } from '@ron/kernel';
import { decodeIndexed, decodeSettled, RECORD } from './delivery-record.ts';
import { NONE, type RowPlace } from '../state/delivery-table.ts';
import type { SpoolLimits } from './spool-limits.ts';
import type { SpoolState } from '../state/spool-state.ts';
import type { UnreadSegments } from '../../unread-segments.ts';

const QUEUE_BYTES_MAX = 16 * 1024 * 1024;
const SEQS_PER_MS = 1000;

export interface SpoolLogInit {
  readonly dir: string;
  readonly fs?: FileSystem | undefined;
  readonly extent?: LogExtent | undefined;
  readonly limits: SpoolLimits;
  readonly state: SpoolState;
  readonly onDurable: (records: readonly DurableRecord[], places: readonly Appended[]) => void;
  readonly unread: UnreadSegments;
  /** Called for each part of the log that was read and is damaged. */
  readonly onDamage: (problem: string) => void;
  readonly signal: AbortSignal;
}

export async function openSpoolLog({
  dir,
  fs,
  extent,
  limits,
  onDurable,
  signal,
  ...init
}: SpoolLogInit): Promise<SegmentLog> {
  const replay = new Replay(init);
  const segments: SegmentLogInit = {
    dir,
    ...(fs !== undefined && { fs }),
    segment_bytes: limits.segment_bytes,
    queue_bytes_max: QUEUE_BYTES_MAX,
    // The other deliveries are still sent.
    skipsUnreadable: true,
    // Deliveries are ordered by number: those of the part come first once it is read. No log has so many records.
    seqAfterUnreadable: () => Math.floor(sched.wall_ms()) * SEQS_PER_MS,
    onRecord: (head, position, body) => replay.record(head, position, body),
    onDamage: (damage) => {
      if (init.unread.isDamage(damage)) init.onDamage(damageText(damage));
    },
    onDurable,
    signal,
  };
  const log = await openLog(segments, extent);
  replay.end();
  return log;
}

export const damageText = ({ what, bytes, segment, offset }: Damage): string =>
  `${what} of ${bytes} bytes in segment ${segment} at ${offset}`;

export const unknownRecord = ({ segment, offset }: Position): string =>
  `unknown record in segment ${segment} at ${offset}`;

class Replay {
  readonly #state: SpoolState;
  readonly #onDamage: (problem: string) => void;
  #seq_last = 0;
  #isSorted = true;

  constructor({ state, onDamage }: Pick<SpoolLogInit, 'state' | 'onDamage'>) {
    this.#state = state;
    this.#onDamage = onDamage;
  }

  record(head: RecordHead, position: Position, body: Buffer): void {
    if (head.type === RECORD.settled) this.#settled(body.subarray(0, head.payload_bytes));
    else this.#delivery(head, { ...position, seq: head.seq }, body.subarray(head.payload_bytes));
  }

  /** Moved records lie behind newer ones: the numbers have the order. */
  end(): void {
    if (!this.#isSorted) this.#state.sort();
  }

  #settled(payload: Buffer): void {
    for (const id of decodeSettled(payload)) {
      const slot = this.#state.table.findId(id);
      if (slot !== NONE) this.#state.remove(slot);
    }
  }

  #delivery(head: RecordHead, place: RowPlace, meta: Buffer): void {
    const indexed = head.type === RECORD.delivery ? decodeIndexed(meta) : undefined;
    if (indexed === undefined) {
      this.#onDamage(unknownRecord(place));
      return;
    }
    const known = this.#state.table.findKey(head.id);
    // Numbers do not tell: those of an unreadable end are used again.
    if (known !== NONE && Buffer.compare(this.#state.table.idOf(known), indexed.id) === 0) {
      this.#state.move(known, place);
      return;
    }
    // A key is only accepted again once its first delivery was settled: a crash lost that record.
    if (known !== NONE) this.#state.remove(known);
    const { payload_bytes, meta_bytes } = head;
    this.#state.addReplayed({ ...indexed, key: head.id, payload_bytes, meta_bytes }, place);
    if (place.seq < this.#seq_last) this.#isSorted = false;
    this.#seq_last = Math.max(this.#seq_last, place.seq);
  }
}
