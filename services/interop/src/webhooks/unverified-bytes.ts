/**
 * The memory of webhook bodies whose signature is not verified yet.
 *
 * Contract: received bytes count until the signature is checked or the request ends. Declared lengths do not count: only bytes that
 * a sender really sent. Strangers, which are in no network of the provider that they name, hold at most three quarters together
 * and `STRANGER_SHARE` from one address: however many of them send slowly, the listed networks of a provider have room. Those of
 * one provider hold at most half.
 * Bound: `bytes_max`. Overflow: the request that would exceed it is refused with 429.
 */
import { addressGroup, RonError } from '@ron/kernel';
import { INTEROP_LIMITS } from '@ron/proto';

const STRANGERS_SHARE = 3 / 4;
const STRANGER_SHARE = 1 / 8;
const NETWORK_SHARE = 1 / 2;

interface Holder {
  readonly key: string;
  readonly bytes_max: number;
  readonly isStranger: boolean;
}

export class UnverifiedBytes {
  readonly #bytes_max: number;
  readonly #stranger_bytes_max: number;
  #bytes = 0;
  #strangers_bytes = 0;
  readonly #byHolder = new Map<string, number>();

  /** `body_bytes_max`: one body of this size is always within the share of an address. */
  constructor(bytes_max: number, body_bytes_max: number = INTEROP_LIMITS.webhook_bytes) {
    this.#bytes_max = bytes_max;
    this.#stranger_bytes_max = Math.max(bytes_max * STRANGER_SHARE, body_bytes_max);
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Addresses and networks that hold bytes. */
  get holders(): number {
    return this.#byHolder.size;
  }

  /** The account of one request. `network`: the provider in whose networks the address lies. */
  open(ip: string, network?: string): UnverifiedBody {
    const holder: Holder =
      network === undefined
        ? { key: addressGroup(ip), bytes_max: this.#stranger_bytes_max, isStranger: true }
        : { key: `provider ${network}`, bytes_max: this.#bytes_max * NETWORK_SHARE, isStranger: false };
    return new UnverifiedBody((bytes) => this.#add(holder, bytes));
  }

  #add({ key, bytes_max, isStranger }: Holder, bytes: number): void {
    const own = (this.#byHolder.get(key) ?? 0) + bytes;
    const strangers = this.#strangers_bytes + (isStranger ? bytes : 0);
    const isFull =
      this.#bytes + bytes > this.#bytes_max ||
      own > bytes_max ||
      (isStranger && strangers > this.#bytes_max * STRANGERS_SHARE);
    if (bytes > 0 && isFull) {
      throw new RonError('busy', 'too many bodies wait for their signature check', {
        op: 'webhook',
        reason: 'BUSY',
        retry_after_ms: 1000,
      });
    }
    this.#bytes += bytes;
    this.#strangers_bytes = strangers;
    if (own === 0) this.#byHolder.delete(key);
    else this.#byHolder.set(key, own);
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
