/**
 * Slots of `/put`: for all of its requests, and for the streams among them, which hold a worker while a client sends.
 *
 * Contract: `take` gives a slot or refuses at once. One subject never has all of them, so the slow clients of one capability leave
 * room for others, however many addresses they use.
 * Bound: the capacity of the channel. Overflow: 429 `busy`.
 *
 *     using _ = streams.take(grant.subject);
 */
import { SlotLimit } from '@ron/ingress';
import { RonError } from '@ron/kernel';

const RETRY_AFTER_MS = 1000;

export interface PutSlotsInit {
  readonly capacity: number;
  /** The part of the capacity that one subject may take. */
  readonly share: number;
  /** The work that the slots are for, in the plural. */
  readonly what: string;
}

export class PutSlots {
  readonly #what: string;
  readonly #capacity: number;
  readonly #slots: SlotLimit<string>;
  busy_total = 0;

  constructor({ capacity, share, what }: PutSlotsInit) {
    this.#what = what;
    this.#capacity = capacity;
    this.#slots = new SlotLimit(capacity, () => (this.busy_total += 1), share);
  }

  get depth(): number {
    return this.#slots.taken;
  }

  /** For the gate `put_queue`. */
  get problem(): string | undefined {
    return this.depth < this.#capacity ? undefined : `${this.#capacity} ${this.#what} are in process`;
  }

  take(subject: string): Disposable {
    if (!this.#slots.tryTake(subject)) {
      throw new RonError('busy', `too many ${this.#what} are in process`, {
        op: 'put',
        reason: 'BUSY',
        retry_after_ms: RETRY_AFTER_MS,
      });
    }
    return { [Symbol.dispose]: () => this.#slots.give(subject) };
  }

  /** Requests end by themselves. */
  close(): void {
    return undefined;
  }
}
