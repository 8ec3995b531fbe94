/**
 * Brings deliveries to mailbox, or to the spool.
 *
 *     route --> send --> stored, unsent
 *        `----> spool <-----------'
 *
 * Contract: `send` and `spool` return the deliveries that are durable; the others have failed then, or are `unsent`. The spool is
 * used behind deliveries of the provider that wait there, and if mailbox takes longer than `spool.after`, is in a brownout, or its
 * breaker is open. A delivery holds its place in the spool from the call of `spool` on. A call of mailbox that takes longer goes
 * on under the same keys; if it succeeds, the spooled copies are dropped.
 * Bound: the batch, and calls that go on until their deadline of 1 s. `spool` ends with the deadline of `writing`, even if the
 * disk hangs: a delivery that is being written then fails, but may be stored. A topic that is full refuses its deliveries with
 * 503; it is tried again after `FULL_RETRY_MS`. A body that its topic never takes is refused with 413; those behind it in the
 * call, which mailbox refuses too, go to the spool.
 */
import { LATE, orAborted, RonError, withTimeout, type Deadline } from '@ron/kernel';
import type { SendResult } from '@ron/proto';
import { messageOf } from '../mailbox/delivery.ts';
import type { FullTopics } from '../mailbox/full-topics.ts';
import type { MailboxSends } from '../mailbox/mailbox.ts';
import type { Receipts } from '../receipts/receipts.ts';
import type { Spool } from '../spool/spool.ts';
import type { Accepted } from './accepted.ts';
import type { BatchReceipts } from './batch-receipts.ts';
import { unavailable, type BatchEntry } from './delivery-batch.ts';

export interface PlacementInit {
  readonly mailbox: MailboxSends;
  readonly spool: Pick<Spool, 'holds' | 'idOf' | 'append' | 'receiptOf' | 'delivered'>;
  readonly receipts: Pick<Receipts, 'isFull'>;
  readonly full: FullTopics;
  /** How long mailbox may take before a delivery is spooled. */
  readonly spool_after_ms: () => number;
  /** Bounds an append to the spool. */
  readonly writing: () => Deadline;
}

/** A delivery that is durable, whose receipt may not be. */
export interface Stored {
  readonly entry: BatchEntry;
  readonly accepted: Accepted;
}

export interface Routes {
  readonly direct: readonly BatchEntry[];
  readonly spooled: readonly BatchEntry[];
}

export interface Sent {
  readonly stored: readonly Stored[];
  /** To be spooled: mailbox did not take them in time. */
  readonly unsent: readonly BatchEntry[];
}

export class Placement {
  readonly #init: PlacementInit;

  constructor(init: PlacementInit) {
    this.#init = init;
  }

  /** Deliveries that can go nowhere now fail. */
  route(entries: readonly BatchEntry[]): Routes {
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
    return { direct, spooled };
  }

  /** Sends to mailbox. */
  async send(entries: readonly BatchEntry[], receipts: BatchReceipts): Promise<Sent> {
    if (entries.length === 0) return { stored: [], unsent: [] };
    const messages = entries.map(({ verified }) => messageOf(verified.delivery));
    const call = this.#init.mailbox.send(messages);
    const results = await this.#resultsInTime(call);
    if (results === undefined) {
      this.#followLateCall(call, entries);
      return { stored: [], unsent: entries };
    }
    const { answered, behind } = splitBehindLarge(entries, results);
    const stored = await Promise.all(answered.map(({ entry, result }) => this.#storedBy(entry, result, receipts)));
    return { stored: stored.filter((each) => each !== undefined), unsent: behind };
  }

  async spool(entries: readonly BatchEntry[], receipts: BatchReceipts): Promise<readonly Stored[]> {
    const all = await Promise.all(entries.map((entry) => this.#spool(entry, receipts)));
    return all.filter((stored) => stored !== undefined);
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

  async #storedBy(entry: BatchEntry, result: SendResult, receipts: BatchReceipts): Promise<Stored | undefined> {
    const { delivery, receipt } = entry.verified;
    const { full } = this.#init;
    if (!('error' in result)) {
      full.delete(delivery.topic);
      // A further try of the call finds the message of the first.
      const duplicate = result.duplicate && result.id !== delivery.id;
      const id = duplicate ? await receipts.addDuplicate(receipt, result.id) : receipts.add(receipt);
      return { entry, accepted: { receipt: id, duplicate, place: 'mailbox' } };
    }
    if (result.error === 'conflict' && result.id !== undefined) {
      const id = await receipts.addConflict(receipt, result.id);
      return { entry, accepted: { receipt: id, duplicate: true, place: 'mailbox' } };
    }
    if (result.error === 'full' && result.retryable !== false) full.add(delivery.topic);
    entry.fail(refusalBy(result, delivery.topic));
    return undefined;
  }

  async #spool(entry: BatchEntry, receipts: BatchReceipts): Promise<Stored | undefined> {
    const { delivery, receipt } = entry.verified;
    using writing = this.#init.writing();
    try {
      const kept = await this.#init.spool.append({ ...delivery, receipt }, writing.signal);
      if (kept !== 'full') return await this.#spooled(entry, kept, receipts, writing.signal);
      entry.fail(new RonError('backpressure', 'mailbox is away and the spool is full', { reason: 'BACKPRESSURE' }));
    } catch (error) {
      entry.fail(unavailable('mailbox is away and the spool cannot be written', error));
    }
    return undefined;
  }

  /** Of a duplicate, the receipt is that of the body in the spool. */
  async #spooled(
    entry: BatchEntry,
    { id, duplicate }: { id: string; duplicate: boolean },
    receipts: BatchReceipts,
    signal: AbortSignal,
  ): Promise<Stored | undefined> {
    const accepted: Accepted = { receipt: id, duplicate, place: 'spool' };
    if (receipts.has(id)) return { entry, accepted };
    const receipt = duplicate ? await orAborted(this.#init.spool.receiptOf(id), signal) : entry.verified.receipt;
    if (receipt === undefined) {
      entry.fail(unavailable('the first delivery with this id has just left the spool'));
      return undefined;
    }
    receipts.add(receipt);
    return { entry, accepted };
  }
}

interface Split {
  readonly answered: readonly { readonly entry: BatchEntry; readonly result: SendResult }[];
  /** Refused only because a delivery before them never fits their topic. */
  readonly behind: readonly BatchEntry[];
}

function splitBehindLarge(entries: readonly BatchEntry[], results: readonly SendResult[]): Split {
  const answered: { entry: BatchEntry; result: SendResult }[] = [];
  const behind: BatchEntry[] = [];
  const closed = new Set<string>();
  for (const [at, entry] of entries.entries()) {
    const result = results[at]!;
    const { topic } = entry.verified.delivery;
    if ('error' in result && result.error === 'full' && closed.has(topic)) behind.push(entry);
    else answered.push({ entry, result });
    if ('error' in result && result.retryable === false) closed.add(topic);
  }
  return { answered, behind };
}

const topicFull = (topic: string): RonError => unavailable(`the topic ${topic} is full: receive its messages`);

function refusalBy({ error, detail, retryable }: Extract<SendResult, { error: string }>, topic: string): RonError {
  if (error !== 'full') return unavailable(`mailbox refused the topic: ${detail}`);
  if (retryable !== false) return topicFull(topic);
  return new RonError('payload_too_large', `the body is larger than max_bytes of the topic ${topic} in mailbox`);
}
