/**
 * Copies the receipts of a segment that the start could not read to the end of the log, once the disk can read it.
 *
 * Contract: afterwards the index has each receipt of the segment that retention has not removed, as it was. Its batches are
 * copied too if they sign such a receipt; one whose batch is in another segment is signed again. Rejects if the disk cannot read
 * the segment, or there is no room; the copies that were made count.
 * Bound: `CHUNK_RECORDS` records are copied together. Cancellation: by the signal, between two groups.
 */
import type { RecordHead, RecordInput } from '@ron/log';
import type { Damage, Position } from '@ron/log';
import { formatUlid } from '@ron/proto';
import type { ReceiptLog } from './receipt-log.ts';
import { NO_ROW } from './receipt-index.ts';
import { BATCH_RECORD, idsIn, RECEIPT_RECORD } from './receipt-records.ts';

const CHUNK_RECORDS = 128;

export interface LateReceiptsInit {
  readonly receipts: Pick<ReceiptLog, 'log' | 'index'>;
  /** Whether retention may have removed a receipt before the copy began. */
  readonly wasRemoved: (id: string) => boolean;
  readonly append: (records: readonly RecordInput[], signal: AbortSignal) => Promise<void>;
  readonly onDamage: (damage: Damage) => void;
}

/** Returns the number of receipts that were copied. */
export async function copyLate(
  { receipts, wasRemoved, append, onDamage }: LateReceiptsInit,
  segment: number,
  signal: AbortSignal,
): Promise<number> {
  const { log, index } = receipts;
  let chunk: RecordInput[] = [];
  let copied = 0;
  const flush = async (): Promise<void> => {
    const records = chunk;
    chunk = [];
    if (records.length > 0) await append(records, signal);
    copied += records.length;
  };
  const signs = (payload: Uint8Array): boolean =>
    [...idsIn(payload)].some((id) => {
      const row = index.find(id);
      return row !== NO_ROW && index.isUnsigned(row);
    });
  const addBatch = async (record: RecordInput): Promise<void> => {
    await flush();
    if (signs(record.payload)) await append([record], signal);
  };
  const onRecord = (head: RecordHead, _at: Position, body: Buffer): void | Promise<void> => {
    const { type, id, payload_bytes } = head;
    const copy = (): RecordInput => {
      const bytes = Buffer.from(body);
      return { type, id, payload: bytes.subarray(0, payload_bytes), meta: bytes.subarray(payload_bytes) };
    };
    if (type === BATCH_RECORD) return addBatch(copy());
    if (type !== RECEIPT_RECORD || index.find(id) !== NO_ROW || wasRemoved(formatUlid(id))) return undefined;
    chunk.push(copy());
    return chunk.length < CHUNK_RECORDS ? undefined : flush();
  };
  const damages: Damage[] = [];
  await log.scanSegment(segment, onRecord, (damage) => void damages.push(damage), signal);
  await flush();
  for (const damage of damages) onDamage(damage);
  return copied;
}
