/**
 * A durable nonce counter for one AES-GCM key. Reusing a nonce would expose the key.
 *
 *   nonce (12) = random id of the block (8) | number of the use (4)
 *
 * Contract: no nonce is returned twice. Numbers are reserved in blocks, and a block is used only after `reserve` has durably
 * recorded it as spent: a crash loses numbers and never repeats one. A restored backup does repeat numbers, which no counter
 * can detect; then the random block id differs.
 * Bound: `uses_max` nonces, at most 2^32; then `rotate_needed` permanently.
 * Cancellation: an aborted caller leaves; the reservation continues for the others.
 */
import { assert, RonError, sched, touch, WaitList } from '@ron/kernel';

export const USES_MAX = 2 ** 32;
export const BLOCK_USES = 1024;
const ID_BYTES = 8;

export interface NonceTrackerInit {
  /** The first number that was never reserved, as last recorded durably. */
  spent: number;
  /** Numbers per block, which is the most that a crash loses. Default `BLOCK_USES`. */
  block?: number;
  /** Default `USES_MAX`. */
  uses_max?: number;
  /** Records durably that every number below `spent` is used. Retried with the same value after a failure. */
  reserve(spent: number): Promise<void>;
}

export class NonceTracker {
  readonly #block: number;
  readonly #uses_max: number;
  readonly #init: NonceTrackerInit;
  readonly #waiting: WaitList<void, undefined>;
  /** The reserved numbers that are still unused are `#next` to `#end`. */
  #next: number;
  #end: number;
  #id: Uint8Array = new Uint8Array(ID_BYTES);
  #isReserving = false;

  constructor(init: NonceTrackerInit) {
    this.#block = init.block ?? BLOCK_USES;
    this.#uses_max = init.uses_max ?? USES_MAX;
    assert(this.#uses_max <= USES_MAX && init.spent <= this.#uses_max, 'a nonce counter has at most 2^32 uses');
    this.#init = init;
    this.#next = init.spent;
    this.#end = init.spent;
    this.#waiting = new WaitList({ owner: this, label: 'nonce' });
  }

  /** Uses so far, lost ones included. */
  get used(): number {
    return this.#next;
  }

  /** Whether no caller waits and nothing is being reserved: only then may another counter continue for the key. */
  get isIdle(): boolean {
    return !this.#isReserving && this.#waiting.size === 0;
  }

  /** Returns a fresh nonce. */
  async next(signal: AbortSignal): Promise<Uint8Array> {
    signal.throwIfAborted();
    touch(this);
    while (this.#next === this.#end) {
      if (this.#end >= this.#uses_max) {
        throw new RonError('rotate_needed', `the key has reached its limit of ${this.#uses_max} uses: rotate it`);
      }
      // [kms I-2] One reservation at a time; numbers are given out in one synchronous step.
      if (!this.#isReserving) this.#startReserving();
      await this.#waiting.park(signal, undefined);
      touch(this);
    }
    const nonce = new Uint8Array(ID_BYTES + 4);
    nonce.set(this.#id);
    new DataView(nonce.buffer).setUint32(ID_BYTES, this.#next);
    this.#next += 1;
    return nonce;
  }

  #startReserving(): void {
    this.#isReserving = true;
    // Never rejects: the waiting callers get the error.
    void sched.task('nonce.reserve', () => this.#reserveBlock());
  }

  async #reserveBlock(): Promise<void> {
    const end = Math.min(this.#end + this.#block, this.#uses_max);
    try {
      await this.#init.reserve(end);
      touch(this);
      this.#end = end;
      this.#id = sched.randomBytes(ID_BYTES);
      this.#isReserving = false;
      while (this.#waiting.size > 0) this.#waiting.wakeFirst(undefined);
    } catch (error) {
      touch(this);
      this.#isReserving = false;
      this.#waiting.failAll(error);
    }
  }
}
