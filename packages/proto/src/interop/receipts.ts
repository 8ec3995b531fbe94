/** Receipts of webhooks, and the answers of `GET /receipts/{id}`. */
import type { SchemeName } from './providers.ts';

/** The acceptance of a webhook. Its canonical JSON is a leaf of a signed tree. */
export interface WebhookReceipt {
  /** A ULID. */
  readonly id: string;
  readonly provider: string;
  readonly scheme: SchemeName;
  readonly secret_version: number;
  /** With the prefix `unsigned-` if no signature covers it; absent if the provider sent none. */
  readonly delivery_id?: string;
  readonly received_ms: number;
  readonly b3: string;
  readonly bytes: number;
  readonly topic: string;
}

/** One signature of a root, as kms gives it. */
export interface ReceiptSignature {
  readonly kid: string;
  readonly alg: string;
  readonly signature_b64: string;
}

/** The answer of `GET /receipts/{id}` with 202: kms has not signed it yet. */
export interface UnsignedReceipt {
  readonly receipt: WebhookReceipt;
}

/** The place of a receipt in a signed tree. All hashes are in hex. */
export interface ReceiptTree {
  readonly size: number;
  readonly index: number;
  /** The hash of the receipt. Any other receipt has another one. */
  readonly leaf: string;
  /** From the leaf to the root. */
  readonly path: readonly string[];
  readonly root: string;
}

/** The answer of `GET /receipts/{id}`: a receipt and its proof. */
export interface SignedReceipt {
  readonly receipt: WebhookReceipt;
  readonly tree: ReceiptTree;
  /** The kid with its version, as it is signed. */
  readonly kid: string;
  readonly sigs: readonly ReceiptSignature[];
  /** The entry of the signature in the audit log of kms; absent if the log lagged behind. No signature covers it. */
  readonly log_index?: number;
  /** Once a checkpoint covers the entry. */
  readonly log_proof?: object;
}
