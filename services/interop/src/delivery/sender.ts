/**
 * Stores verified webhooks: in mailbox, or in the spool if mailbox is away, and then their receipts.
 *
 * Contract: `store` resolves once the delivery is durable in mailbox or spool and its receipt is durable. The deliveries of a
 * provider reach mailbox in the order in which the sender took them, because newer ones go behind spooled ones. A delivery whose
 * idempotency key is known gets the first receipt. If a crash left a message without its receipt, the retry of the provider
 * writes it.
 * The spool is used if mailbox takes longer than `spool.after`, is in a brownout, or its breaker is open. A call that takes
 * longer goes on under the same keys; if it succeeds, the spooled copies are dropped.
 * Bound: one batch at a time (`BATCH_LIMITS`), besides calls that go on until their deadline of 1 s. A topic that is full
 * refuses its deliveries with 503; it is tried again after `FULL_RETRY_MS`.
 * Cancellation: a batch that was begun is finished; `run` ends after it once the queue is closed or its signal aborts.
 *
 *     queue --> take up to 128 or 1 MiB --> mailbox --> receipts --> 202
 *                                     `---> spool ---^
 */
import { isRonError, LATE, RonError, withTimeout, type Deadline, type TaskContext, type WorkQueue } from '@ron/kernel';
import type { OutgoingMessage, WebhookReceipt, SendResult } from '@ron/proto';
import type { Receipts } from '../receipts/receipts.ts';
import type { Spool } from '../spool/spool.ts';
import type { Accepted, VerifiedDelivery } from './accepted.ts';
import { DeliveryBatch, unavailable, type BatchEntry } from './delivery-batch.ts';
import type { FullTopics } from './full-topics.ts';

/** The part of mailbox that the sender uses. */
export interface MailboxSends {
  /** Why there is no mailbox at all, such as a missing URL: deliveries are refused, because nothing would empty the spool. */
  readonly missing?: string | undefined;
  /** Whether calls can succeed now: the breaker is closed and there is no brownout. */
  readonly isReady: boolean;
  send(messages: readonly OutgoingMessage[]): Promise<readonly SendResult[]>;
}

export interface SenderInit {
  readonly queue: WorkQueue;
  readonly mailbox: MailboxSends;
  readonly spool: Pick<Spool, 'holds' | 'idOf' | 'append' | 'delivered'>;
  readonly receipts: Pick<Receipts, 'has' | 'append' | 'isFull'>;
  readonly full: FullTopics;
  /** How long mailbox may take before a delivery is spooled. */
  readonly spool_after_ms: () => number;
  /** Bounds appends to spool and receipt log. */
  readonly writing: () => Deadline;
}

/** A delivery that is durable, whose receipt is not. */
interface Stored {
  readonly entry: BatchEntry;
  readonly accepted: Accepted;
  readonly receipt: WebhookReceipt | undefined;
}

export class Sender {
  readonly #init: SenderInit;
  /** The batch that jobs join while the sender takes them. */
  #open: DeliveryBatch | undefined;

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
    if (this.#open === undefined) return Promise.reject(new RonError('internal', 'no batch takes deliveries'));
    return this.#open.add(verified);
  }

  /** Waits for a job, then takes those that wait too. Undefined if the queue is closed and empty. */
  async #take(signal: AbortSignal): Promise<DeliveryBatch | undefined> {
    const { queue } = this.#init;
    const first = await queue.take(signal);
    if (first === undefined) return undefined;
    const batch = new DeliveryBatch();
    this.#open = batch;
    try {
      // The work of a job joins the open batch synchronously; the job ends when its delivery is answered.
      void first.run();
      while (!batch.isFull && queue.depth > 0 && !signal.aborted) {
        const job = await queue.take(signal);
        if (job === undefined) break;
        void job.run();
      }
    } finally {
      this.#open = undefined;
    }
    return batch;
  }

  async #storeAll({ entries }: DeliveryBatch): Promise<void> {
    try {
      const stored = await this.#place(entries);
      await this.#writeReceipts(stored);
      for (const { entry, accepted } of stored) entry.accept(accepted);
    } catch (error) {
      // A defect or a failed disk: the providers send again, and the idempotency keys prevent a second message.
      for (const entry of entries) entry.fail(error);
    }
  }

  async #place(entries: readonly BatchEntry[]): Promise<readonly Stored[]> {
    const { mailbox, spool, receipts, full } = this.#init;
    const direct: BatchEntry[] = [];
    const spooled: BatchEntry[] = [];
    for (const entry of entries) {
      const { provider, topic, idempotency_key } = entry.verified.delivery;
      if (mailbox.missing !== undefined) entry.fail(unavailable(mailbox.missing));
      else if (receipts.isFull) entry.fail(unavailable('the receipt log is full of receipts that kms has not signed'));
      else if (spool.idOf(idempotency_key) !== undefined) spooled.push(entry);
      else if (full.has(topic)) entry.fail(topicFull(topic));
      else if (spool.holds(provider) || !mailbox.isReady) spooled.push(entry);
      else direct.push(entry);
    }
    const [sent, kept] = await Promise.all([this.#sendAll(direct), this.#spoolAll(spooled)]);
    return [...sent, ...kept];
  }

  /** Sends to mailbox; deliveries that it does not take in time go to the spool. */
  async #sendAll(entries: readonly BatchEntry[]): Promise<readonly Stored[]> {
    if (entries.length === 0) return [];
    const call = this.#init.mailbox.send(entries.map(({ verified }) => messageOf(verified)));
    const results = await this.#resultsInTime(call);
    if (results === undefined) {
      this.#followLateCall(call, entries);
      return await this.#spoolAll(entries);
    }
    return entries.flatMap((entry, at) => this.#storedBy(entry, results[at]!));
  }

  /** Undefined if mailbox failed or is late. */
  async #resultsInTime(call: Promise<readonly SendResult[]>): Promise<readonly SendResult[] | undefined> {
    try {
      const results = await withTimeout(call, this.#init.spool_after_ms());
      return results === LATE ? undefined : results;
    } catch {
      // `Upstream` counts and logs failed calls.
      return undefined;
    }
  }

  /** A call that succeeds late has stored its messages: their spooled copies are not sent again. */
  #followLateCall(call: Promise<readonly SendResult[]>, entries: readonly BatchEntry[]): void {
    call.then(
      (results) => {
        for (const [at, entry] of entries.entries())
          if ('seq' in results[at]!) this.#init.spool.delivered(entry.verified.delivery.id);
      },
      () => undefined,
    );
  }

  #storedBy(entry: BatchEntry, result: SendResult): readonly Stored[] {
    const { delivery, receipt } = entry.verified;
    const { full, receipts } = this.#init;
    if (!('error' in result)) {
      full.delete(delivery.topic);
      const accepted: Accepted = { receipt: result.id, duplicate: result.duplicate, place: 'mailbox' };
      return [{ entry, accepted, receipt: { ...receipt, id: result.id } }];
    }
    if (result.error === 'conflict' && result.id !== undefined) {
      // Another body has this key. Without the receipt of that body, this delivery gets one of its own.
      const id = receipts.has(result.id) ? result.id : receipt.id;
      return [{ entry, accepted: { receipt: id, duplicate: true, place: 'mailbox' }, receipt: { ...receipt, id } }];
    }
    if (result.error === 'full') full.add(delivery.topic);
    entry.fail(
      result.error === 'full' ? topicFull(delivery.topic) : unavailable(`mailbox refused the topic: ${result.detail}`),
    );
    return [];
  }

  async #spoolAll(entries: readonly BatchEntry[]): Promise<readonly Stored[]> {
    const all = await Promise.all(entries.map((entry) => this.#spool(entry)));
    return all.filter((stored) => stored !== undefined);
  }

  async #spool(entry: BatchEntry): Promise<Stored | undefined> {
    const { delivery, receipt } = entry.verified;
    using writing = this.#init.writing();
    try {
      const kept = await this.#init.spool.append({ ...delivery, receipt }, writing.signal);
      if (kept === 'full') {
        entry.fail(new RonError('backpressure', 'mailbox is away and the spool is full', { reason: 'BACKPRESSURE' }));
        return undefined;
      }
      const { id, duplicate } = kept;
      return { entry, accepted: { receipt: id, duplicate, place: 'spool' }, receipt: { ...receipt, id } };
    } catch (error) {
      entry.fail(unavailable('mailbox is away and the spool cannot be written', error));
      return undefined;
    }
  }

  /** [interop I-9] One append for the batch; receipts that exist are not written again. */
  async #writeReceipts(stored: readonly Stored[]): Promise<void> {
    const { receipts } = this.#init;
    const missing = new Map<string, WebhookReceipt>();
    for (const { receipt } of stored)
      if (receipt !== undefined && !receipts.has(receipt.id) && !missing.has(receipt.id))
        missing.set(receipt.id, receipt);
    if (missing.size === 0) return;
    using writing = this.#init.writing();
    try {
      await receipts.append([...missing.values()], writing.signal);
    } catch (error) {
      if (isRonError(error, 'storage_full')) throw unavailable('the disk of the receipt log is full', error);
      throw unavailable('the receipt log cannot be written', error);
    }
  }
}

const topicFull = (topic: string): RonError => unavailable(`the topic ${topic} is full: receive its messages`);

function messageOf({ delivery }: VerifiedDelivery): OutgoingMessage {
  const { topic, id, idempotency_key, headers, payload } = delivery;
  return { topic, id, idempotency_key, headers, payload };
}
