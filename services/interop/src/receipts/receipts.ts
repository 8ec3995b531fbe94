/**
 * The receipts of accepted webhooks.
 *
 * Contract: `append` resolves once the receipts are durable; one receipt per id, across restarts. The task `receipt_signer` has
 * kms sign them in trees. `get` returns a receipt, and its proof once it is signed; the proof of kms's log is fetched when it is
 * requested. In amnesia all of it is in memory. Without kms, receipts stay unsigned, and `problem` says so.
 * Bound: `bytes_max` on disk, 1 % of it in memory (`receipt-index.ts`), which receipts of the usual 400 bytes fill first: `kept_max`
 * receipts, about 250 for each MiB of `bytes_max`. Overflow: signed receipts are removed, oldest first, an eighth of all; if
 * unsigned ones fill the index, `isFull` is true and appends are refused with `backpressure`.
 * Cancellation: by the signal of each call. `close` syncs the log.
 *
 *     using writing = runtime.deadline('request');
 *     await receipts.append([receipt], writing.signal);
 *     const { signed } = (await receipts.get(receipt.id, signal))!;
 */
import { treePath, treeSize } from '@ron/client/webhook-receipt';
import { Deadline, orAborted, sched, Watch, type TaskContext } from '@ron/kernel';
import { MemoryDisk, type Damage, type FileSystem } from '@ron/log';
import { isUlid, ulidBytes, type AuditProof, type SignedReceipt, type WebhookReceipt } from '@ron/proto';
import type { LogExtent } from '../log-extent.ts';
import { readRecord } from './read-record.ts';
import { NO_ROW, type BatchPlace, type Row } from './receipt-index.ts';
import { ReceiptLog } from './receipt-log.ts';
import { batchIn, damaged, receiptIn } from './receipt-records.ts';
import { ReceiptSigner, type RootSigner } from './receipt-signer.ts';

/** Kms, as receipts use it. */
export interface ReceiptKms extends RootSigner {
  /** Undefined while no checkpoint covers the entry. */
  proof(log_index: number, signal: AbortSignal): Promise<AuditProof | undefined>;
}

export interface ReceiptsInit {
  /** The directory of the log; undefined in amnesia. */
  readonly dir: string | undefined;
  readonly fs: FileSystem;
  /** Follows the log. Default: none is kept. */
  readonly extent?: LogExtent | undefined;
  /** `receipts.max_bytes`; in amnesia `amnesia.bytes_max`. */
  readonly bytes_max: number;
  /** `receipts.max_age`. */
  readonly max_age_ms: number;
  /** An earlier log in `dir` was lost (missing-logs.ts). Default false. */
  readonly isReplaced?: boolean;
  /** Undefined without kms. */
  readonly kms: ReceiptKms | undefined;
  readonly onEvent: (event: ReceiptEvent) => void;
  readonly signal: AbortSignal;
}

export type ReceiptEvent =
  | { readonly kind: 'receipts problem'; readonly problem: string }
  /** The disk could not read a part of the log at the start. Its receipts are missing until it can. */
  | { readonly kind: 'receipts part unreadable'; readonly problem: string }
  | { readonly kind: 'receipts part read'; readonly segment: number; readonly receipts: number }
  | { readonly kind: 'receipts removed'; readonly count: number };

export interface ReceiptState {
  readonly receipt: WebhookReceipt;
  /** Once it is signed. */
  readonly signed?: SignedReceipt;
}

const MEMORY_DIR = '/receipts';
/** Of the memory of amnesia: the rest is for segments that are not removed yet. */
const MEMORY_SHARE = 0.75;
/** Signatures that are later than this are reported. */
const LATE_MS = 10_000;
const PROOF_MS = 500;
const RECEIPT_BYTES = 1024;
const BATCH_BYTES = 16 * 1024;

export class Receipts implements AsyncDisposable {
  readonly #init: ReceiptsInit;
  readonly #log: ReceiptLog;
  readonly #signer: ReceiptSigner;
  /** Signed batches: the wait for a signature. */
  readonly #signed = new Watch('receipts.signed', 0);
  readonly #damage: { count: number };

  private constructor(init: ReceiptsInit, log: ReceiptLog, damage: { count: number }) {
    this.#init = init;
    this.#log = log;
    this.#damage = damage;
    const report = (problem: string): void => init.onEvent({ kind: 'receipts problem', problem });
    const onLost = (count: number): void => {
      damage.count += count;
      report(`${count} receipts are damaged on disk and cannot be signed`);
    };
    this.#signer = new ReceiptSigner({ log, signer: init.kms, onLost, onFailure: report });
  }

  static async open(init: ReceiptsInit): Promise<Receipts> {
    const damage = { count: 0 };
    const onDamage = ({ what, segment, offset, bytes }: Damage): void => {
      // A crash during a write leaves a torn tail; none of its receipts was acknowledged.
      if (what === 'torn tail') return;
      damage.count += 1;
      const problem = `the receipt log is damaged: ${what} of ${bytes} bytes at ${offset} in segment ${segment}`;
      init.onEvent({ kind: 'receipts problem', problem });
    };
    const { dir, fs, extent, bytes_max, max_age_ms, isReplaced = false, kms, signal } = init;
    let receipts: Receipts | undefined;
    const log = await ReceiptLog.open({
      dir: dir ?? MEMORY_DIR,
      fs: dir === undefined ? new MemoryDisk(bytes_max) : fs,
      extent,
      bytes_max: dir === undefined ? Math.floor(bytes_max * MEMORY_SHARE) : bytes_max,
      max_age_ms,
      isReplaced,
      keepsUnsigned: kms !== undefined,
      onDamage,
      onRead: (segment, count) => init.onEvent({ kind: 'receipts part read', segment, receipts: count }),
      onRemoved: (count) => init.onEvent({ kind: 'receipts removed', count }),
      onChange: () => receipts!.#onChange(),
      signal,
    });
    receipts = new Receipts(init, log, damage);
    const { problem } = log.unread;
    if (problem !== undefined) init.onEvent({ kind: 'receipts part unreadable', problem });
    return receipts;
  }

  has(id: string): boolean {
    return this.#log.has(id);
  }

  /** Whether a missing receipt was never in the log, so that it may be written under its id. */
  isRestorable(id: string): boolean {
    return this.#log.isRestorable(id);
  }

  append(receipts: readonly WebhookReceipt[], signal: AbortSignal): Promise<void> {
    return this.#log.append(receipts, signal);
  }

  /** Unsigned receipts fill the index: webhooks get 503. */
  get isFull(): boolean {
    return this.#log.isFull;
  }

  /** For the gate `receipts`. */
  get problem(): string | undefined {
    const { problem } = this.#log;
    if (problem !== undefined) return `the receipt log cannot be written: ${problem}`;
    if (this.#init.kms === undefined) return 'kms is not configured: receipts are not signed';
    const { failure } = this.#signer;
    const why = failure === undefined ? '' : `: ${failure}`;
    if (this.isFull) return `unsigned receipts fill the index, webhooks are refused${why}`;
    const unread = this.#log.unread.problem;
    if (unread !== undefined) return `${unread} of the receipts: those in it are missing`;
    if (this.sign_lag_ms < LATE_MS) return undefined;
    return `receipts have not been signed for ${Math.floor(this.sign_lag_ms / 1000)} s${why}`;
  }

  /** Since the start, by state. */
  get totals(): Readonly<Record<string, number>> {
    const { stored_total, signed_total, removed_total } = this.#log;
    return { stored: stored_total, signed: signed_total, removed: removed_total, damaged: this.#damage.count };
  }

  /** Receipts that `get` knows. */
  get kept(): number {
    return this.#log.index.rows;
  }

  /** The most that are kept: then the oldest signed ones are removed. */
  get kept_max(): number {
    return this.#log.index.capacity;
  }

  /** The age of the oldest unsigned receipt. */
  get sign_lag_ms(): number {
    const { index } = this.#log;
    return index.unsigned === 0 ? 0 : index.ageMs(index.first_unsigned, sched.wall_ms());
  }

  /** The receipt alone. Undefined if the id is unknown, or its receipt was removed or is damaged. */
  async read(id: string, signal: AbortSignal): Promise<WebhookReceipt | undefined> {
    const row = this.#rowOf(id);
    if (row === NO_ROW) return undefined;
    const { index, log } = this.#log;
    const record = await orAborted(readRecord(log, index.placeOf(row), RECEIPT_BYTES), signal);
    return record && receiptIn(record.payload);
  }

  /** Undefined if the id is unknown, or its receipt was removed. Rejects with `integrity` if it is damaged on disk. */
  async get(id: string, signal: AbortSignal): Promise<ReceiptState | undefined> {
    const row = this.#rowOf(id);
    if (row === NO_ROW) return undefined;
    const { index, log } = this.#log;
    const [place, batch] = [index.placeOf(row), index.batchOf(row)];
    const record = await orAborted(readRecord(log, place, RECEIPT_BYTES), signal);
    if (record === undefined) return this.has(id) ? throwDamaged(id) : undefined;
    const receipt = receiptIn(record.payload);
    if (batch === undefined) return { receipt };
    const signed = await orAborted(this.#signedBy(receipt, batch), signal);
    if (signed === undefined) return this.has(id) ? throwDamaged(id) : undefined;
    return { receipt, signed: await this.#withProof(signed, signal) };
  }

  /** Waits until the receipt is signed, or the signal aborts. */
  async untilSigned(id: string, signal: AbortSignal): Promise<void> {
    const batches = this.#signed.subscribe();
    const isUnsigned = (): boolean => {
      const row = this.#rowOf(id);
      return row !== NO_ROW && this.#log.index.isUnsigned(row);
    };
    while (isUnsigned()) {
      try {
        await batches.changed(signal);
      } catch {
        return;
      }
    }
  }

  /** The task `receipt_signer`. */
  run(task: Pick<TaskContext, 'signal' | 'stopping'>): Promise<void> {
    return this.#signer.run(task);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#signed.close();
    await this.#log[Symbol.asyncDispose]();
  }

  #rowOf(id: string): Row {
    return isUlid(id) ? this.#log.index.find(ulidBytes(id)) : NO_ROW;
  }

  async #signedBy(receipt: WebhookReceipt, place: BatchPlace): Promise<SignedReceipt | undefined> {
    const record = await readRecord(this.#log.log, place, BATCH_BYTES);
    if (record === undefined) return undefined;
    const { leaves, root, kid, sigs, log_index } = batchIn(record.head.id, record.payload, record.meta);
    return {
      receipt,
      tree: {
        size: treeSize(leaves.length),
        index: place.leaf,
        leaf: hex(leaves[place.leaf]!),
        path: treePath(leaves, place.leaf).map(hex),
        root: hex(root),
      },
      kid,
      sigs,
      ...(log_index !== undefined && { log_index }),
    };
  }

  /** The proof is an addition: a kms that is away or slow gives an answer without one. */
  async #withProof(signed: SignedReceipt, signal: AbortSignal): Promise<SignedReceipt> {
    const { log_index } = signed;
    const { kms } = this.#init;
    if (log_index === undefined || kms === undefined) return signed;
    using within = Deadline.after('receipt_proof', PROOF_MS, { signal });
    try {
      const log_proof = await within.run((its) => kms.proof(log_index, its));
      return log_proof === undefined ? signed : { ...signed, log_proof };
    } catch {
      signal.throwIfAborted();
      return signed;
    }
  }

  #onChange(): void {
    this.#signer.notify();
    this.#signed.set(this.#log.signed_total);
  }
}

function throwDamaged(id: string): never {
  throw damaged(ulidBytes(id));
}

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
