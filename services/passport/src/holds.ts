/**
 * Questions for revocations that wait for an answer.
 *
 * Promise: whoever knows less than there is gets the document at once; whoever knows all is held until there is more, or
 * for `hold_ms`. No change falls between the look and the wait. A drain lets everybody go.
 * Bound: `capacity` are held. Overflow: told at once that there is nothing new. Cancellation: by the signal of a question.
 */
import type { RevocationDocument } from '@ron/auth';
import { Deadline, type Watch } from '@ron/kernel';

export interface HoldsInit {
  readonly capacity: number;
  readonly hold_ms: number;
  readonly news: Watch<RevocationDocument>;
}

export class Holds {
  readonly capacity: number;
  readonly #init: HoldsInit;
  readonly #letGo = new AbortController();
  #held = 0;
  #rejected_total = 0;

  constructor(init: HoldsInit) {
    this.capacity = init.capacity;
    this.#init = init;
  }

  get depth(): number {
    return this.#held;
  }

  get rejected_total(): number {
    return this.#rejected_total;
  }

  /** The document, or undefined when there is nothing newer than `known`. */
  async newerThan(known: number | undefined, signal: AbortSignal): Promise<RevocationDocument | undefined> {
    const { news, hold_ms } = this.#init;
    const receiver = news.subscribe();
    if (news.value.version !== known) return news.value;
    if (this.#held >= this.capacity) {
      this.#rejected_total += 1;
      return undefined;
    }
    this.#held += 1;
    using hold = Deadline.after('hold', hold_ms, { signal: AbortSignal.any([signal, this.#letGo.signal]) });
    try {
      return await receiver.changed(hold.signal);
    } catch {
      return undefined;
    } finally {
      this.#held -= 1;
    }
  }

  /** Lets everybody go and holds nobody any more. */
  close(): void {
    this.#letGo.abort();
  }
}
