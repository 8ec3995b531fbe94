/**
 * Stores verified webhooks: in mailbox, or in the spool if mailbox is away, and then their receipts.
 *
 * Contract: `store` resolves once the delivery is durable in mailbox or spool and its receipt is durable. The accepted
 * deliveries of a provider reach mailbox in the order in which the sender took them, because newer ones go behind spooled ones.
 * One that was refused may be in mailbox nevertheless, also behind newer ones: its call came through late, and the spool had no
 * room for it. Its retry is a duplicate then.
 * A delivery whose idempotency key is known gets the first receipt. If a crash left a message without its receipt, the retry of
 * the provider writes it, unless its body differs (batch-receipts.ts).
 * Deliveries for the spool delay no other: a disk that hangs refuses them after the deadline of `writing`.
 * Bound: one batch at a time (`BATCH_LIMITS`), besides calls that go on late (placement.ts), deliveries that are being spooled
 * (spool-log.ts bounds them), and one delivery that was taken from the queue but did not fit: it begins the next batch.
 * Cancellation: a batch that was begun is finished; `run` ends after it once the queue is closed or its signal aborts.
 *
 *     queue --> take up to 128 and 1 MiB --> mailbox --> receipts --> 202
 *                                      `---> spool ----> receipts --> 202     (beside the next batches)
 */
import { RonError, touch, type Deadline, type TaskContext, type WorkQueue } from '@ron/kernel';
import type { Receipts } from '../receipts/receipts.ts';
import type { Accepted, VerifiedDelivery } from './accepted.ts';
import { BatchReceipts } from './batch-receipts.ts';
import { DeliveryBatch, type BatchEntry } from './delivery-batch.ts';
import { Placement, type PlacementInit, type Stored } from './placement.ts';

export interface SenderInit extends PlacementInit {
  readonly queue: WorkQueue;
  readonly receipts: Pick<Receipts, 'has' | 'isRestorable' | 'read' | 'append' | 'isFull'>;
}

export class Sender {
  readonly #init: SenderInit;
  /** The batch that jobs join while the sender takes them. */
  #open: DeliveryBatch | undefined;
  /** The next batch, with the delivery that did not fit the open one. */
  #next: DeliveryBatch | undefined;
  readonly #placement: Placement;
  /** Deliveries that are being spooled, by key. */
  readonly #spooling = new Map<string, BatchEntry>();
  /** Their batches. */
  readonly #spools = new Set<Promise<void>>();

  constructor(init: SenderInit) {
    this.#init = init;
    this.#placement = new Placement(init);
  }

  /** Waits in the queue for the sender. Rejects with `busy` at once if its lane is full. */
  store(verified: VerifiedDelivery, deadline: Deadline): Promise<Accepted> {
    return this.#init.queue.submit('webhook', deadline, () => this.#join(verified), verified.delivery.provider);
  }

  /** The task `sender`. */
  async run({ signal }: Pick<TaskContext, 'signal'>): Promise<void> {
    // [interop I-6] A stop closes the queue: deliveries that were accepted before are still stored.
    try {
      for (;;) {
        const batch = await this.#take(signal);
        if (batch === undefined) return;
        await this.#storeAll(batch);
      }
    } finally {
      await Promise.all(this.#spools);
    }
  }

  #join(verified: VerifiedDelivery): Promise<Accepted> {
    touch(this);
    const open = this.#open;
    if (open === undefined) return Promise.reject(new RonError('internal', 'no batch takes deliveries'));
    if (open.fits(verified)) return open.add(verified);
    this.#next = new DeliveryBatch(this.#spooling);
    return this.#next.add(verified);
  }

  /** Waits for a job, then takes those that wait too. Undefined if the queue is closed and empty. */
  async #take(signal: AbortSignal): Promise<DeliveryBatch | undefined> {
    const { queue } = this.#init;
    const begun = this.#next;
    const batch = begun ?? new DeliveryBatch(this.#spooling);
    this.#next = undefined;
    // The work of a job joins the open batch synchronously; the job ends when its delivery is answered.
    this.#open = batch;
    try {
      if (begun === undefined) {
        const first = await queue.take(signal);
        if (first === undefined) return undefined;
        void first.run();
      }
      this.#fill(batch, signal);
    } finally {
      this.#open = undefined;
    }
    return batch;
  }

  /** It does not wait: the deadlines of the deliveries in the batch are running. */
  #fill(batch: DeliveryBatch, signal: AbortSignal): void {
    while (!batch.isFull && this.#next === undefined && !signal.aborted) {
      const job = this.#init.queue.tryTake();
      if (job === undefined) return;
      void job.run();
    }
  }

  async #storeAll({ entries }: DeliveryBatch): Promise<void> {
    const { direct, spooled } = this.#placement.route(entries);
    this.#spool(spooled);
    const receipts = this.#newReceipts();
    await orFail(direct, async () => {
      const { stored, unsent } = await this.#placement.send(direct, receipts);
      this.#spool(unsent);
      await this.#accept(stored, receipts);
    });
  }

  /** Does not wait for the spool. */
  #spool(entries: readonly BatchEntry[]): void {
    if (entries.length === 0) return;
    for (const entry of entries) this.#spooling.set(entry.verified.delivery.idempotency_key, entry);
    const spool = this.#spoolAll(entries);
    this.#spools.add(spool);
    void spool.then(() => this.#spools.delete(spool));
  }

  async #spoolAll(entries: readonly BatchEntry[]): Promise<void> {
    const receipts = this.#newReceipts();
    await orFail(entries, async () => {
      await this.#accept(await this.#placement.spool(entries, receipts), receipts);
    });
    touch(this);
    for (const entry of entries) this.#spooling.delete(entry.verified.delivery.idempotency_key);
  }

  #newReceipts(): BatchReceipts {
    return new BatchReceipts(this.#init.receipts, this.#init.writing);
  }

  /** They are durable. */
  async #accept(stored: readonly Stored[], receipts: BatchReceipts): Promise<void> {
    await orFail(
      stored.map(({ entry }) => entry),
      async () => {
        await receipts.write();
        for (const { entry, accepted } of stored) entry.accept(accepted);
      },
    );
  }
}

/** After a defect or a failed disk the providers send again, and the idempotency keys prevent a second message. */
async function orFail(entries: readonly BatchEntry[], work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    for (const entry of entries) entry.fail(error);
  }
}
