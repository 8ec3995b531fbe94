/**
 * Signs receipts in batches: the task `receipt_signer`.
 *
 *     128 receipts, or those of 250 ms --> tree --> kms signs its root --> batch record, synced
 *
 * Contract: the oldest receipts are signed first, each once; those that the disk cannot read now are passed over
 * (unread-receipts.ts). A batch whose signature or record failed is tried again as it is: the `op_id` of its root makes kms
 * answer the same. After a crash its receipts are in another batch. A kms that is away only delays signatures.
 * Bound: one batch at a time; tries wait up to `WAIT_MS_MAX`. Retention runs at least every `RETAIN_MS`.
 * Cancellation: ends with `stopping`, which also ends a call to kms; an append that has begun completes.
 */
import { treeRoot } from '@ron/client/webhook-receipt';
import { isRonError, jittered, Notify, sched, sleep, type TaskContext } from '@ron/kernel';
import { RECEIPT_LIMITS } from '@ron/proto';
import type { ReceiptLog } from './receipt-log.ts';
import type { Batch, RootSignature } from './receipt-records.ts';
import { UnreadReceipts } from './unread-receipts.ts';
import { unsignedReceipts, type UnsignedBatch } from './unsigned-receipts.ts';

/** How long receipts wait for others. */
const BATCH_MS = 250;
const RETAIN_MS = 60_000;
const WAIT_MS_MAX = 5000;
const BACKOFF = jittered({ tries_max: Number.MAX_SAFE_INTEGER, cap_ms: WAIT_MS_MAX });

export interface RootSigner {
  /** Signs a root, in hex. Idempotent. */
  sign(root: string, signal: AbortSignal): Promise<RootSignature>;
}

export interface ReceiptSignerInit {
  readonly log: ReceiptLog;
  /** Undefined: receipts stay unsigned. */
  readonly signer: RootSigner | undefined;
  /** Called with the number of unsigned receipts that are damaged. */
  readonly onLost: (count: number) => void;
  /** Called for the first failure after a success. */
  readonly onFailure: (problem: string) => void;
}

interface Tree extends UnsignedBatch {
  readonly root: Uint8Array;
}

/** A tree that is not stored yet, and its signature once kms gave it. */
interface Pending {
  readonly tree: Tree;
  signature?: RootSignature;
}

export class ReceiptSigner {
  readonly #init: ReceiptSignerInit;
  readonly #changed = new Notify('receipts.changed');
  readonly #unread = new UnreadReceipts();
  #pending: Pending | undefined;
  #failures = 0;
  /** Why the last try failed. */
  failure: string | undefined;

  constructor(init: ReceiptSignerInit) {
    this.#init = init;
  }

  /** Receipts became durable. */
  notify(): void {
    this.#changed.notifyOne();
  }

  async run({ signal, stopping }: Pick<TaskContext, 'signal' | 'stopping'>): Promise<void> {
    const over = AbortSignal.any([signal, stopping]);
    for (;;) {
      // [interop I-5] [interop I-6] Every wait ends with the stop. Unsigned receipts are signed after the next start.
      await this.#waitForBatch(over).catch(ignoreAbortOf(over));
      if (stopping.aborted) return;
      const failures = await this.#work(signal, over);
      if (stopping.aborted) return;
      // A task that was killed ends, so that another one takes its place.
      signal.throwIfAborted();
      this.#report(failures[0]);
      if (failures.length === 0) continue;
      await sleep(BACKOFF.backoff_ms(this.#failures), over, 'receipts.retry').catch(ignoreAbortOf(over));
    }
  }

  get #isWanted(): boolean {
    const { signer } = this.#init;
    return signer !== undefined && (this.#wanted > 0 || this.#pending !== undefined);
  }

  /** Receipts that can be signed now. */
  get #wanted(): number {
    return this.#init.log.index.unsigned - this.#unread.size;
  }

  async #waitForBatch(stopping: AbortSignal): Promise<void> {
    if (this.#pending !== undefined) return;
    const idle_ms = Math.min(RETAIN_MS, this.#init.log.unread.wait_ms, this.#unread.wait_ms);
    await this.#waitWhile(() => !this.#isWanted && !this.#init.log.isRetentionDue, idle_ms, stopping);
    await this.#waitWhile(() => this.#isWanted && this.#wanted < RECEIPT_LIMITS.tree, BATCH_MS, stopping);
  }

  async #waitWhile(isWaiting: () => boolean, wait_ms: number, stopping: AbortSignal): Promise<void> {
    const until_ms = sched.now_ms() + wait_ms;
    while (isWaiting()) {
      const rest_ms = until_ms - sched.now_ms();
      if (rest_ms <= 0) return;
      await this.#changed.notified(stopping, { within_ms: rest_ms });
    }
  }

  /** Old receipts are removed even while kms is away. Returns the failures. */
  async #work(signal: AbortSignal, stopping: AbortSignal): Promise<readonly string[]> {
    const failures: string[] = [];
    const failed =
      (action: string) =>
      (error: unknown): void =>
        void failures.push(`cannot ${action}: ${isRonError(error) ? error.message : 'unexpected error'}`);
    this.#unread.release();
    if (this.#isWanted) await this.#signBatch(signal, stopping).catch(failed('sign receipts'));
    await this.#init.log.retain(signal).catch(failed('remove old receipts'));
    return failures;
  }

  async #signBatch(signal: AbortSignal, stopping: AbortSignal): Promise<void> {
    const { log, signer } = this.#init;
    const pending = (this.#pending ??= await this.#nextTree(signal));
    if (pending === undefined) return;
    const { tree } = pending;
    // [interop I-4] `signer` limits its calls.
    pending.signature ??= await signer!.sign(Buffer.from(tree.root).toString('hex'), stopping);
    const batch: Batch = { ...tree, ...pending.signature };
    await log.appendBatch(batch, signal);
    this.#pending = undefined;
  }

  async #nextTree(signal: AbortSignal): Promise<Pending | undefined> {
    const { log, onLost } = this.#init;
    const { ids, leaves } = await unsignedReceipts(
      { log: log.log, index: log.index, unread: this.#unread, onLost },
      signal,
    );
    return ids.length === 0 ? undefined : { tree: { ids, leaves, root: treeRoot(leaves) } };
  }

  get #unreadProblem(): string | undefined {
    const { size } = this.#unread;
    return size === 0 ? undefined : `the disk cannot read ${size} receipts`;
  }

  #report(failure: string | undefined): void {
    const problem = failure ?? this.#unreadProblem;
    if (problem !== undefined && this.failure === undefined) this.#init.onFailure(problem);
    this.failure = problem;
    this.#failures = failure === undefined ? 0 : this.#failures + 1;
  }
}

function ignoreAbortOf(signal: AbortSignal): (error: unknown) => void {
  return (error) => {
    if (!signal.aborted) throw error;
  };
}
