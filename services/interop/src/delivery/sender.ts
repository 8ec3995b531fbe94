/**
 * Stores verified webhooks: in mailbox, or in the spool if mailbox is away, and then their receipts.
 *
 * Contract: `store` resolves once the delivery is durable in mailbox or spool and its receipt is durable. The accepted
 * deliveries of a provider reach mailbox in the order in which the sender took them, because newer ones go behind spooled ones.
 * One that was refused may be in mailbox nevertheless, also behind newer ones: its call came through late, and the spool had no
 * room for it. Its retry is a duplicate then.
 * A delivery whose idempotency key is known gets the first receipt. If a crash left a message without its receipt, the retry of
 * the provider writes it, unless its body differs (batch-receipts.ts).
 * Bound: one batch at a time (`BATCH_LIMITS`), besides calls that go on late (placement.ts), and one delivery that was taken
 * from the queue but did not fit: it begins the next batch.
 * Cancellation: a batch that was begun is finished; `run` ends after it once the queue is closed or its signal aborts.
 *
 *     queue --> take up to 128 and 1 MiB --> mailbox --> receipts --> 202
 *                                      `---> spool ---^
 */
import { RonError, type Deadline, type TaskContext, type WorkQueue } from '@ron/kernel';
import type { Receipts } from '../receipts/receipts.ts';
import type { Accepted, VerifiedDelivery } from './accepted.ts';
import { BatchReceipts } from './batch-receipts.ts';
import { DeliveryBatch } from './delivery-batch.ts';
import { Placement, type PlacementInit } from './placement.ts';

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

  constructor(init: SenderInit) {
    this.#init = init;
  }

  /** Waits in the queue for the sender. Rejects with `busy` at once if its lane is full. */
  store(verified: VerifiedDelivery, deadline: Deadline): Promise<Accepted> {
    return this.#init.queue.submit('webhook', deadline, () => this.#join(verified), verified.delivery.provider);
  }

  /** The task `sender`. */
  async run({ signal }: Pick<TaskContext, 'signal'>): Promise<void> {
    // [interop I-6] A stop closes the queue: deliveries that were accepted before are still stored.
    for (;;) {
      const batch = await this.#take(signal);
      if (batch === undefined) return;
      await this.#storeAll(batch);
    }
  }

  #join(verified: VerifiedDelivery): Promise<Accepted> {
    const open = this.#open;
    if (open === undefined) return Promise.reject(new RonError('internal', 'no batch takes deliveries'));
    if (open.fits(verified)) return open.add(verified);
    this.#next = new DeliveryBatch();
    return this.#next.add(verified);
  }

  /** Waits for a job, then takes those that wait too. Undefined if the queue is closed and empty. */
  async #take(signal: AbortSignal): Promise<DeliveryBatch | undefined> {
    const { queue } = this.#init;
    const begun = this.#next;
    const batch = begun ?? new DeliveryBatch();
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
    const receipts = new BatchReceipts(this.#init.receipts, this.#init.writing);
    try {
      const stored = await new Placement(this.#init, receipts).place(entries);
      await receipts.write();
      for (const { entry, accepted } of stored) entry.accept(accepted);
    } catch (error) {
      // A defect or a failed disk: the providers send again, and the idempotency keys prevent a second message.
      for (const entry of entries) entry.fail(error);
    }
  }
}
