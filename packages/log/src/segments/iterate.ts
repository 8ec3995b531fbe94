/**
 * Reads a log as a sequence of records, from a position to the end of its durable part.
 *
 * Contract: each durable record from the position on is yielded once, verified, in log order; the iteration ends when it
 * has reached the end of the durable part. Records that become durable meanwhile are included. Damaged ranges are
 * reported and skipped; segments that are removed meanwhile are skipped.
 * Bound: `STEP_BYTES` of records and one more are in memory. Cancellation: by the signal, between two reads.
 */
import { isRonError } from '@ron/kernel';
import { recordBytes, type LogRecord, type Position, type RecordHead } from './record.ts';
import type { Damage, SegmentLog } from './segment-log.ts';

const STEP_BYTES = 1024 * 1024;

export interface IteratedRecord extends LogRecord {
  readonly position: Position;
  /** The position after the record. */
  readonly next: Position;
}

export async function* iterate(
  log: SegmentLog,
  from: Position,
  onDamage: (damage: Damage) => void,
  signal: AbortSignal,
): AsyncGenerator<IteratedRecord, void, void> {
  let at = from;
  for (;;) {
    signal.throwIfAborted();
    const segment = log.files.numbers().find((each) => each >= at.segment);
    if (segment === undefined) return;
    if (segment > at.segment) at = { segment, offset: 0 };
    const end = log.files.durableBytesOf(segment);
    if (at.offset >= end) {
      at = { segment: segment + 1, offset: 0 };
      continue;
    }
    const step = await readStep(log, at, end, onDamage, signal);
    yield* step.records;
    at = step.next;
  }
}

interface Step {
  readonly records: readonly IteratedRecord[];
  readonly next: Position;
}

async function readStep(
  log: SegmentLog,
  { segment, offset }: Position,
  end: number,
  onDamage: (damage: Damage) => void,
  signal: AbortSignal,
): Promise<Step> {
  const records: IteratedRecord[] = [];
  const onRecord = (head: RecordHead, position: Position, body: Buffer): void => {
    const next = position.offset + recordBytes(head.payload_bytes, head.meta_bytes);
    // A scan that searches for the next record after damage may pass the end.
    if (next > end) return;
    const copy = Buffer.from(body);
    const [payload, meta] = [copy.subarray(0, head.payload_bytes), copy.subarray(head.payload_bytes)];
    records.push({ head, payload, meta, position, next: { segment, offset: next } });
  };
  try {
    const until = Math.min(offset + STEP_BYTES, end);
    const { tail, hasMore } = await log.scanSegment(segment, onRecord, onDamage, signal, { from: offset, until });
    // Without more, no record follows in this part of the segment.
    return { records, next: { segment, offset: hasMore ? Math.min(tail, end) : end } };
  } catch (error) {
    if (!isRonError(error, 'not_found')) throw error;
    return { records, next: { segment: segment + 1, offset: 0 } };
  }
}
