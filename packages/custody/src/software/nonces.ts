/**
 * Nonces of one AES-GCM key, counted. Whoever uses one nonce twice gives the key away.
 *
 *   nonce (12) = random id of the block (8) | number of the use (4)
 *
 * Promise: no nonce is given out twice, whatever happens. Numbers come in blocks, and a block is given out only after
 * `reserve` has made it durable that its numbers are spent: a crash loses numbers, it never repeats one. A restored
 * backup does repeat numbers, which no counter can see; there the random id tells the blocks apart.
 * Bound: `uses_max` nonces, 2^32 and never more; after that `rotate_needed` for good. Those who wait are the callers.
 * Overflow: none. Cancellation: a caller that gives up leaves; the reservation goes on for the others.
 */
import { assert, RonError, sched, touch, WaitList } from '@ron/kernel';

export const USES_MAX = 2 ** 32;
export const BLOCK_USES = 1024;
const ID_BYTES = 8;

export interface NonceTrackerInit {
  /** The first number that was never reserved, as it was last made durable. */
  spent: number;
  /** Numbers of a block: what a crash may lose. Default `BLOCK_USES`. */
  block?: number;
  /** Default `USES_MAX`. */
  uses_max?: number;
  /** Makes it durable that every number below `spent` is used up. Retried with the same value when it fails. */
  reserve(spent: number): Promise<void>;
}

export class NonceTracker {
  readonly #block: number;
  readonly #uses_max: number;
  readonly #init: NonceTrackerInit;
  readonly #waiting: WaitList<void, undefined>;
  /** The numbers from `#next` to `#end` are ours to give. */
  #next: number;
  #end: number;
  #id: Uint8Array = new Uint8Array(ID_BYTES);
  #isReserving = false;

  constructor(init: NonceTrackerInit) {
    this.#block = init.block ?? BLOCK_USES;
    this.#uses_max = init.uses_max ?? USES_MAX;
    assert(this.#uses_max <= USES_MAX && init.spent <= this.#uses_max, 'a nonce has room for 2^32 uses');
    this.#init = init;
    this.#next = init.spent;
    this.#end = init.spent;
    this.#waiting = new WaitList({ owner: this, label: 'nonce' });
  }

  /** Uses so far, lost ones included. */
  get used(): number {
    return this.#next;
  }

  /** A nonce that nobody had before. */
  async next(signal: AbortSignal): Promise<Uint8Array> {
    signal.throwIfAborted();
    touch(this);
    while (this.#next === this.#end) {
      if (this.#end >= this.#uses_max) {
        throw new RonError('rotate_needed', `the key was used ${this.#uses_max} times: rotate it`);
      }
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
    // It never rejects: those who wait get the error.
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
