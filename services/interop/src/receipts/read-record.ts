/**
 * Reads a record of which only the place is known.
 *
 * Contract: the record, verified, or undefined if it is damaged or its segment was removed. Bound: `RECORD_BYTES_MAX`.
 */
import { isRonError } from '@ron/kernel';
import { decodeHeader, HEADER_BYTES, recordIn, type LogRecord, type Position, type SegmentLog } from '@ron/log';

/** A batch of 128 receipts, or a receipt, with room. */
const RECORD_BYTES_MAX = 128 * 1024;

/** `bytes` are read at first: most records fit. */
export async function readRecord(log: SegmentLog, place: Position, bytes: number): Promise<LogRecord | undefined> {
  try {
    return await readAt(log, place, bytes);
  } catch (error) {
    if (isRonError(error, 'not_found')) return undefined;
    throw error;
  }
}

async function readAt(log: SegmentLog, { segment, offset }: Position, bytes: number): Promise<LogRecord | undefined> {
  const { files } = log;
  const salt = files.saltOf(segment);
  const buffer = Buffer.allocUnsafeSlow(bytes);
  const found = buffer.subarray(0, await files.read(segment, buffer, bytes, offset));
  const head = decodeHeader(found, 0, salt);
  if (head === undefined) return undefined;
  const { payload_bytes, meta_bytes } = head;
  const length = HEADER_BYTES + payload_bytes + meta_bytes;
  if (length > RECORD_BYTES_MAX) return undefined;
  if (length > bytes) return await readAt(log, { segment, offset }, length);
  if (length > found.length) return undefined;
  return recordIn(found.subarray(0, length), salt, payload_bytes, meta_bytes);
}
