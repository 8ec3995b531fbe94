/**
 * The records of the receipt log.
 *
 * | type | id | payload | meta |
 * | --- | --- | --- | --- |
 * | 1 receipt | its ULID | its canonical JSON: the text of its leaf | |
 * | 2 batch | the root of its tree | id and leaf of each receipt, 48 bytes each | JSON `{kid, sigs, log_index}` |
 * | 3 replaced | zeros | an earlier log was lost before this record | |
 *
 * Contract: a batch follows its receipts in the log. Decoding takes bytes that the log has verified.
 * Bound: `RECEIPT_LIMITS.tree` receipts in a batch.
 */
import { RonError } from '@ron/kernel';
import type { RecordInput } from '@ron/log';
import { canonicalReceipt, formatUlid, ulidBytes, type ReceiptSignature, type WebhookReceipt } from '@ron/proto';

export const RECEIPT_RECORD = 1;
export const BATCH_RECORD = 2;
export const REPLACED_RECORD = 3;

const ULID_BYTES = 16;
const HASH_BYTES = 32;
const ENTRY_BYTES = ULID_BYTES + HASH_BYTES;

/** The answer of kms to a root. */
export interface RootSignature {
  /** With its version. */
  readonly kid: string;
  readonly sigs: readonly ReceiptSignature[];
  /** Absent if the log of kms lagged behind. */
  readonly log_index?: number;
}

/** The receipts of a tree, in order, and its signature. */
export interface Batch extends RootSignature {
  readonly root: Uint8Array;
  readonly ids: readonly Uint8Array[];
  readonly leaves: readonly Uint8Array[];
}

export function receiptRecord(receipt: WebhookReceipt): RecordInput {
  return {
    type: RECEIPT_RECORD,
    id: ulidBytes(receipt.id),
    payload: Buffer.from(canonicalReceipt(receipt)),
  };
}

export function receiptIn(payload: Uint8Array): WebhookReceipt {
  return JSON.parse(Buffer.from(payload).toString()) as WebhookReceipt;
}

export function batchRecord({ root, ids, leaves, kid, sigs, log_index }: Batch): RecordInput {
  const payload = new Uint8Array(ids.length * ENTRY_BYTES);
  for (const [at, id] of ids.entries()) {
    payload.set(id, at * ENTRY_BYTES);
    payload.set(leaves[at]!, at * ENTRY_BYTES + ULID_BYTES);
  }
  return { type: BATCH_RECORD, id: root, payload, meta: Buffer.from(JSON.stringify({ kid, sigs, log_index })) };
}

export const replacedRecord = (): RecordInput => ({
  type: REPLACED_RECORD,
  id: new Uint8Array(ULID_BYTES),
  payload: new Uint8Array(0),
});

/** The ids of the receipts of a batch. */
export function* idsIn(payload: Uint8Array): Generator<Uint8Array, void, void> {
  for (let at = 0; at + ENTRY_BYTES <= payload.length; at += ENTRY_BYTES) yield payload.subarray(at, at + ULID_BYTES);
}

export function batchIn(root: Uint8Array, payload: Uint8Array, meta: Uint8Array): Batch {
  const ids = [...idsIn(payload)];
  const leaves = ids.map((_, at) => payload.slice(at * ENTRY_BYTES + ULID_BYTES, (at + 1) * ENTRY_BYTES));
  return { root, ids, leaves, ...(JSON.parse(Buffer.from(meta).toString()) as RootSignature) };
}

export function damaged(id: Uint8Array): RonError {
  return new RonError('integrity', `the receipt ${formatUlid(id)} is damaged on disk`);
}
