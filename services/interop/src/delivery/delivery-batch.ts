/** The deliveries that the sender takes together. Bound: `messages` deliveries or `bytes` of payload, or one delivery. */
import { RonError, sched, type Parked } from '@ron/kernel';
import type { Accepted, VerifiedDelivery } from './accepted.ts';

export const BATCH_LIMITS = { messages: 128, bytes: 1024 * 1024 } as const;

/** A delivery of a batch, and the answer that its request waits for. */
export class BatchEntry {
  readonly verified: VerifiedDelivery;
  readonly #answer: Parked<Accepted>;
  /** Answered by now; a late result of mailbox changes nothing then. */
  isAnswered = false;

  constructor(verified: VerifiedDelivery) {
    this.verified = verified;
    this.#answer = sched.park('sender.answer');
  }

  get answer(): Promise<Accepted> {
    return this.#answer.promise;
  }

  accept(accepted: Accepted): void {
    if (this.isAnswered) return;
    this.isAnswered = true;
    this.#answer.wake(accepted);
  }

  fail(error: unknown): void {
    if (this.isAnswered) return;
    this.isAnswered = true;
    this.#answer.fail(error);
  }
}

export class DeliveryBatch {
  readonly entries: BatchEntry[] = [];
  #bytes = 0;

  get isFull(): boolean {
    return this.entries.length >= BATCH_LIMITS.messages || this.#bytes >= BATCH_LIMITS.bytes;
  }

  add(verified: VerifiedDelivery): Promise<Accepted> {
    const entry = new BatchEntry(verified);
    this.entries.push(entry);
    this.#bytes += verified.delivery.payload.length;
    return entry.answer;
  }
}

/** The error of a webhook that cannot be stored anywhere now. */
export const unavailable = (message: string, cause?: unknown): RonError =>
  new RonError('not_ready', message, { reason: 'DOWNSTREAM_UNAVAILABLE', ...(cause !== undefined && { cause }) });
