/**
 * The memory of webhook bodies whose signature is not verified yet.
 *
 * Contract: received bytes count until the signature is checked or the request ends. One address holds at most half, so that
 * slow senders at one address leave room for others. Declared lengths do not count: only bytes that a sender really sent.
 * Bound: `bytes_max`. Overflow: the request that would exceed it is refused with 429.
 */
import { addressGroup, RonError } from '@ron/kernel';

export class UnverifiedBytes {
  readonly #bytes_max: number;
  #bytes = 0;
  readonly #byAddress = new Map<string, number>();

  constructor(bytes_max: number) {
    this.#bytes_max = bytes_max;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Addresses that hold bytes. */
  get addresses(): number {
    return this.#byAddress.size;
  }

  /** The account of one request. */
  open(ip: string): UnverifiedBody {
    const address = addressGroup(ip);
    return new UnverifiedBody((bytes) => this.#add(address, bytes));
  }

  #add(address: string, bytes: number): void {
    const own = (this.#byAddress.get(address) ?? 0) + bytes;
    if (bytes > 0 && (this.#bytes + bytes > this.#bytes_max || own > this.#bytes_max / 2)) {
      throw new RonError('busy', 'too many bodies wait for their signature check', {
        op: 'webhook',
        reason: 'BUSY',
        retry_after_ms: 1000,
      });
    }
    this.#bytes += bytes;
    if (own === 0) this.#byAddress.delete(address);
    else this.#byAddress.set(address, own);
  }
}

export class UnverifiedBody implements Disposable {
  readonly #add: (bytes: number) => void;
  #bytes = 0;
  #isClosed = false;

  constructor(add: (bytes: number) => void) {
    this.#add = add;
  }

  /** Throws 429 if there is no room, and `canceled` once the account is closed: nothing would give the bytes back. */
  received(bytes: number): void {
    if (this.#isClosed) throw new RonError('canceled', 'the request ended before its body was complete');
    this.#add(bytes);
    this.#bytes += bytes;
  }

  [Symbol.dispose](): void {
    this.#isClosed = true;
    if (this.#bytes > 0) this.#add(-this.#bytes);
    this.#bytes = 0;
  }
}
