/**
 * Reads the oldest unsigned receipts for a batch.
 *
 * Contract: the receipts in the order of the log, each with its leaf. One whose record was read and is damaged is lost: it is
 * reported, and never signed. Rejects if the disk cannot be read: nothing is lost then. Bound: `RECEIPT_LIMITS.tree` receipts, in one read for each segment. Cancellation: by the signal.
 */
import { leafOfText } from '@ron/client/webhook-receipt';
import { rethrowDisk, type RecordHead, type SegmentLog } from '@ron/log';
import { RECEIPT_LIMITS } from '@ron/proto';
import type { ReceiptIndex, Row } from './receipt-index.ts';
import { ignoreMissing } from './receipt-log.ts';
import type { Batch } from './receipt-records.ts';

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
}

export interface UnsignedInit {
  readonly log: SegmentLog;
  readonly index: ReceiptIndex;
  /** Called with the number of receipts that were lost. */
  readonly onLost: (count: number) => void;
}

export async function unsignedReceipts(init: UnsignedInit, signal: AbortSignal): Promise<UnsignedBatch> {
  const { log, index, onLost } = init;
  const rows = oldestUnsigned(index);
  const found = new Map<string, Found>();
  for (const part of partsOf(rows, index)) {
    const onRecord = (
      { id, payload_bytes }: RecordHead,
      { offset }: { readonly offset: number },
      body: Buffer,
    ): void => {
      found.set(keyOf(part.segment, offset), { id, leaf: leafOfText(body.subarray(0, payload_bytes)) });
    };
    const range = { from: part.from, until: part.last + 1 };
    // A segment that is gone has lost its receipts. Damage shows as a receipt that was not found.
    const scanned = log.scanSegment(part.segment, onRecord, () => undefined, signal, range);
    await scanned.catch(ignoreMissing).catch(rethrowDisk);
  }
  const kept: Found[] = [];
  for (const row of rows) {
    const { segment, offset } = index.placeOf(row);
    const receipt = found.get(keyOf(segment, offset));
    if (receipt === undefined) index.lose(row);
    else kept.push(receipt);
  }
  if (kept.length < rows.length) onLost(rows.length - kept.length);
  return { ids: kept.map(({ id }) => id), leaves: kept.map(({ leaf }) => leaf) };
}

function oldestUnsigned(index: ReceiptIndex): readonly Row[] {
  const rows: Row[] = [];
  for (let row = index.first_unsigned; row < index.end && rows.length < RECEIPT_LIMITS.tree; row += 1) {
    if (index.isUnsigned(row)) rows.push(row);
  }
  return rows;
}

function partsOf(rows: readonly Row[], index: ReceiptIndex): readonly Part[] {
  const parts: Part[] = [];
  for (const row of rows) {
    const { segment, offset } = index.placeOf(row);
    const part = parts.at(-1);
    if (part?.segment === segment) part.last = offset;
    else parts.push({ segment, from: offset, last: offset });
  }
  return parts;
}

const keyOf = (segment: number, offset: number): string => `${segment}:${offset}`;
