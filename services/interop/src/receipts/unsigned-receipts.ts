/**
 * Reads the oldest unsigned receipts for a batch.
 *
 * Contract: the receipts in the order of the log, each with its leaf. One whose record was read and is damaged is lost: it is
 * reported, and never signed. Those that the disk cannot read are added to `unread`, and passed over while they are in it: one
 * bad sector does not keep the others unsigned. Rejects if the disk can read none of them.
 * Bound: `RECEIPT_LIMITS.tree` receipts, in one read for each segment; after a failure one for each receipt. Cancellation: by the
 * signal.
 */
import { leafOfText } from '@ron/client/webhook-receipt';
import { HEADER_BYTES, isUnreadable, rethrowDisk, type RecordHead, type SegmentLog } from '@ron/log';
import { RECEIPT_LIMITS } from '@ron/proto';
import type { ReceiptIndex, Row } from './receipt-index.ts';
import { ignoreMissing } from './receipt-log.ts';
import { readRecord } from './read-record.ts';
import type { Batch } from './receipt-records.ts';
import type { UnreadReceipts } from './unread-receipts.ts';

export type UnsignedBatch = Pick<Batch, 'ids' | 'leaves'>;

interface Found {
  readonly id: Uint8Array;
  readonly leaf: Uint8Array;
}

/** A range of the log with wanted records, in one segment. */
interface Part {
  readonly segment: number;
  readonly from: number;
  /** The offset of the last one. */
  last: number;
  readonly rows: Row[];
}

export interface UnsignedInit {
  readonly log: SegmentLog;
  readonly index: ReceiptIndex;
  readonly unread: UnreadReceipts;
  /** Called with the number of receipts that were lost. */
  readonly onLost: (count: number) => void;
}

export async function unsignedReceipts(init: UnsignedInit, signal: AbortSignal): Promise<UnsignedBatch> {
  const { index, unread, onLost } = init;
  const rows = oldestUnsigned(index, unread);
  const found = new Map<Row, Found>();
  let failure: unknown;
  for (const part of partsOf(rows, index)) {
    try {
      await scanPart(init, part, found, signal);
    } catch (error) {
      if (!isUnreadable(error)) rethrowDisk(error);
      failure = error;
      await readEach(init, part, found, signal);
    }
  }
  if (failure === undefined) unread.succeeded();
  else if (found.size === 0) rethrowDisk(failure);
  const kept = rows.flatMap((row) => found.get(row) ?? []);
  const lost = rows.filter((row) => !found.has(row) && !unread.has(row));
  for (const row of lost) index.lose(row);
  if (lost.length > 0) onLost(lost.length);
  return { ids: kept.map(({ id }) => id), leaves: kept.map(({ leaf }) => leaf) };
}

/** One read for all. Damage shows as a receipt that was not found; a segment that is gone has lost its receipts. */
async function scanPart(
  { log, index }: UnsignedInit,
  { segment, from, last, rows }: Part,
  found: Map<Row, Found>,
  signal: AbortSignal,
): Promise<void> {
  const byOffset = new Map(rows.map((row) => [index.placeOf(row).offset, row]));
  const onRecord = ({ id, payload_bytes }: RecordHead, { offset }: { readonly offset: number }, body: Buffer): void => {
    const row = byOffset.get(offset);
    if (row !== undefined) found.set(row, { id, leaf: leafOfText(body.subarray(0, payload_bytes)) });
  };
  const range = { from, until: last + 1 };
  await log.scanSegment(segment, onRecord, () => undefined, signal, range).catch(ignoreMissing);
}

async function readEach(
  { log, index, unread }: UnsignedInit,
  { rows }: Part,
  found: Map<Row, Found>,
  signal: AbortSignal,
): Promise<void> {
  for (const row of rows) {
    signal.throwIfAborted();
    try {
      // Exactly its bytes: those behind it may be unreadable.
      const record = await readRecord(log, index.placeOf(row), HEADER_BYTES);
      if (record !== undefined) found.set(row, { id: record.head.id, leaf: leafOfText(record.payload) });
    } catch (error) {
      if (!isUnreadable(error)) rethrowDisk(error);
      unread.add(row);
    }
  }
}

function oldestUnsigned(index: ReceiptIndex, unread: UnreadReceipts): readonly Row[] {
  const rows: Row[] = [];
  for (let row = index.first_unsigned; row < index.end && rows.length < RECEIPT_LIMITS.tree; row += 1) {
    if (index.isUnsigned(row) && !unread.has(row)) rows.push(row);
  }
  return rows;
}

function partsOf(rows: readonly Row[], index: ReceiptIndex): readonly Part[] {
  const parts: Part[] = [];
  for (const row of rows) {
    const { segment, offset } = index.placeOf(row);
    const part = parts.at(-1);
    if (part?.segment === segment) {
      part.last = offset;
      part.rows.push(row);
    } else parts.push({ segment, from: offset, last: offset, rows: [row] });
  }
  return parts;
}
