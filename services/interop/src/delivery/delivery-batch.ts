/**
 * The deliveries that the sender takes together.
 *
 * Contract: a delivery whose key is in the batch already, or in an earlier one that is being spooled, is a duplicate of that one,
 * and is answered with its receipt: only the first is stored. Bound: `BATCH_LIMITS`, duplicates included.
 */
import { RonError, sched, type Parked } from '@ron/kernel';
import { BATCH_LIMITS } from '../mailbox/mailbox.ts';
import type { Accepted, VerifiedDelivery } from './accepted.ts';

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
  readonly #byKey = new Map<string, BatchEntry>();
  /** By key: deliveries of earlier batches. */
  readonly #spooling: ReadonlyMap<string, BatchEntry>;
  #jobs = 0;
  #bytes = 0;

  constructor(spooling: ReadonlyMap<string, BatchEntry>) {
    this.#spooling = spooling;
  }

  get isFull(): boolean {
    return this.#jobs >= BATCH_LIMITS.messages || this.#bytes >= BATCH_LIMITS.bytes;
  }

  /** Whether the delivery may join. The first always may. */
  fits({ delivery: { idempotency_key, payload } }: VerifiedDelivery): boolean {
    if (this.#jobs === 0 || this.#firstOf(idempotency_key) !== undefined) return true;
    return this.#bytes + payload.length <= BATCH_LIMITS.bytes;
  }

  add(verified: VerifiedDelivery): Promise<Accepted> {
    const { idempotency_key, payload } = verified.delivery;
    this.#jobs += 1;
    const first = this.#firstOf(idempotency_key);
    if (first !== undefined) return duplicateOf(first, verified);
    const entry = new BatchEntry(verified);
    this.entries.push(entry);
    this.#byKey.set(idempotency_key, entry);
    this.#bytes += payload.length;
    return entry.answer;
  }

  #firstOf(idempotency_key: string): BatchEntry | undefined {
    return this.#byKey.get(idempotency_key) ?? this.#spooling.get(idempotency_key);
  }
}

async function duplicateOf(first: BatchEntry, { receipt }: VerifiedDelivery): Promise<Accepted> {
  try {
    return { ...(await first.answer), duplicate: true };
  } catch (error) {
    // A refusal may be for the body of the first.
    if (receipt.b3 === first.verified.receipt.b3) throw error;
    throw unavailable('a delivery with the same id, which came at the same time, was refused', error);
  }
}

/** The error of a webhook that cannot be stored anywhere now. */
export const unavailable = (message: string, cause?: unknown): RonError =>
  new RonError('not_ready', message, { reason: 'DOWNSTREAM_UNAVAILABLE', ...(cause !== undefined && { cause }) });
