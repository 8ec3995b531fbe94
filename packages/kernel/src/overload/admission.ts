/**
 * Decides which connections and requests are let in: requests in flight, requests per second, connections, and the
 * share of each of these that one client address may take.
 *
 * Contract: never more than `connections_max` connections, never more than `connections_per_ip_max` of one address. Never
 * more requests are let in than `inflight_max` at once, of which the last `inflight_reserve` places are for internal
 * callers only, and never more than `inflight_per_ip_max` of one address. Never more than `rps_limit` x t + `rps_burst`
 * in any window, and the same for one address with `rps_limit_per_ip`. Each refusal has its own code and is counted under
 * it. A request refused for one reason uses up nothing of the others.
 * Bound: plain numbers and the table of addresses (`AddressTable`). Overflow: refused at once.
 *
 *   const address = admission.hold(ip);                        // when the connection is accepted
 *   if (admission.tryEnter(address) !== 'ok') return refuse(); // for each request
 *   admission.leave(address);                                  // when the answer is out
 *   admission.release(address);                                // when the connection is closed
 *
 * Internal callers (peers of a Unix socket, services of this node) pass no address, so that they are not counted
 * per address, and `'internal'`, which opens the reserve.
 *
 * `tryEnter` is on the path of every request, even those answered from RAM, and a clock read costs more than the rest of
 * it. So tokens of the rate are drawn from the bucket several at a time and kept in hand:
 *
 *   rps_burst = tokens in the bucket + tokens in hand       (their sum never exceeds it, so the contract holds)
 *
 * The price: after a pause the hand may not be full, and then up to a sixteenth of the burst is missing.
 */
import { AddressTable, type ClientAddress } from './admission-addresses.ts';
import { assert } from '../errors.ts';
import { touch } from '../sched.ts';
import { TokenBucket } from './token-bucket.ts';

export interface AdmissionInit {
  /** Requests that execute or stream at once. */
  inflight_max: number;
  /** The last of these places, which only internal callers can take. Default 0. */
  inflight_reserve?: number;
  /** In-flight places that one address may take. Default: all. */
  inflight_per_ip_max?: number;
  /** Requests per second. Default: no limit. */
  rps_limit?: number | undefined;
  /** Requests at once on top of the rate. Default: half of `rps_limit`. */
  rps_burst?: number | undefined;
  /** Whether `tryEnter` leaves the rate alone, and `tryCharge` spends it: for requests that prove their origin first. Default false. */
  charges_late?: boolean | undefined;
  /** Requests per second of one address. Default: no limit. */
  rps_limit_per_ip?: number | undefined;
  /** Requests of one address at once on top of its rate. Default: half of `rps_limit_per_ip`. */
  rps_burst_per_ip?: number | undefined;
  connections_max: number;
  connections_per_ip_max: number;
}

export type EnterResult = 'ok' | 'inflight_limit' | 'address_limit' | 'rate_limited' | 'address_rate_limited';
export type ConnectResult = 'ok' | 'conn_limit' | 'conns_max';
export type AdmissionRefusal = Exclude<EnterResult | ConnectResult, 'ok'>;

export type Caller = 'open' | 'internal';

const IN_HAND_MAX = 16;

export class Admission {
  /** Refusals since the start, by code. */
  readonly refusals: Record<AdmissionRefusal, number> = {
    inflight_limit: 0,
    address_limit: 0,
    rate_limited: 0,
    address_rate_limited: 0,
    conn_limit: 0,
    conns_max: 0,
  };
  readonly #inflight_max: number;
  /** Places for callers that are not internal. */
  readonly #inflight_open_max: number;
  readonly #inflight_per_ip_max: number;
  readonly #connections_max: number;
  readonly #connections_per_ip_max: number;
  readonly #addresses: AddressTable;
  readonly #bucket: TokenBucket | undefined;
  readonly #charges_late: boolean;
  readonly #in_hand_max: number = 0;
  #in_hand = 0;
  #inflight = 0;
  #connections = 0;

  constructor(init: AdmissionInit) {
    const { inflight_max, inflight_reserve = 0, inflight_per_ip_max = inflight_max } = init;
    for (const limit of [inflight_max, inflight_per_ip_max, init.connections_max, init.connections_per_ip_max]) {
      assert(Number.isInteger(limit) && limit >= 1, 'admission: a limit is a whole number >= 1');
    }
    assert(
      Number.isInteger(inflight_reserve) && inflight_reserve >= 0 && inflight_reserve < inflight_max,
      'admission: 0 <= inflight_reserve < inflight_max',
    );
    this.#inflight_max = inflight_max;
    this.#inflight_open_max = inflight_max - inflight_reserve;
    this.#inflight_per_ip_max = inflight_per_ip_max;
    this.#connections_max = init.connections_max;
    this.#connections_per_ip_max = init.connections_per_ip_max;
    const { rps_limit, rps_limit_per_ip } = init;
    this.#charges_late = init.charges_late === true;
    this.#addresses = new AddressTable(
      rps_limit_per_ip === undefined
        ? undefined
        : { rate_per_s: rps_limit_per_ip, burst: init.rps_burst_per_ip ?? halfOf(rps_limit_per_ip) },
    );
    if (rps_limit === undefined) return;
    const burst = init.rps_burst ?? halfOf(rps_limit);
    this.#in_hand_max = Math.min(IN_HAND_MAX, Math.floor(burst / 16));
    this.#in_hand = this.#in_hand_max;
    this.#bucket = new TokenBucket('rps', { rate_per_s: rps_limit, burst: burst - this.#in_hand_max });
  }

  /** Requests that hold a place. */
  get inflight(): number {
    return this.#inflight;
  }

  get connections(): number {
    return this.#connections;
  }

  /** Addresses in the table. */
  get addresses(): number {
    return this.#addresses.size;
  }

  /** The entry of an address, for `tryEnter`. It stays valid until `release`. */
  hold(ip: string): ClientAddress {
    touch(this);
    return this.#addresses.hold(ip);
  }

  /** One more holder of an entry that the caller knows to be held. */
  keep(address: ClientAddress): void {
    touch(this);
    address.holds++;
  }

  release(address: ClientAddress): void {
    touch(this);
    this.#addresses.release(address);
  }

  /** Whether `tryEnter` would let a request in now. Changes nothing. */
  hasRoom(address?: ClientAddress, caller: Caller = 'open'): boolean {
    if (this.#refusalNow(address, caller) !== undefined) return false;
    return this.#entryBucket === undefined || this.#in_hand > 0 || this.#entryBucket.retryAfter_ms(1) === 0;
  }

  /** Lets a request in, which then calls `leave` exactly once with the same address. */
  tryEnter(address?: ClientAddress, caller: Caller = 'open'): EnterResult {
    touch(this);
    const refusal = this.#refusalNow(address, caller);
    // [storage I-9] [kms I-9] [index I-9] [edge I-9] [interop I-9] Refused before a byte of the body is read and before any queue.
    if (refusal !== undefined) return this.#refuse(refusal);
    const bucket = this.#entryBucket;
    if (bucket !== undefined && !this.#spend(bucket)) return this.#refuse('rate_limited');
    this.#inflight++;
    if (address !== undefined) {
      this.#addresses.takeToken(address);
      address.inflight++;
    }
    return 'ok';
  }

  /** Spends one request of the rate, for a request that entered with `charges_late`. */
  tryCharge(): boolean {
    touch(this);
    if (this.#bucket === undefined || this.#spend(this.#bucket)) return true;
    this.#refuse('rate_limited');
    return false;
  }

  leave(address?: ClientAddress): void {
    this.suspend();
    this.drop(address);
  }

  /** Gives the place back while the request waits in a queue. It still counts for its address. */
  suspend(): void {
    touch(this);
    assert(this.#inflight > 0, 'a request leaves once');
    this.#inflight--;
  }

  /** A suspended request ends without resuming. */
  drop(address?: ClientAddress): void {
    touch(this);
    if (address === undefined) return;
    assert(address.inflight > 0, 'a request leaves once');
    address.inflight--;
    this.#addresses.tidy(address);
  }

  /**
   * Takes a place back after `suspend`. Never refused, because accepted work is not dropped: resumed requests may exceed
   * `inflight_max` by the number of workers that the queue has.
   */
  resume(): void {
    touch(this);
    this.#inflight++;
  }

  /** As `resume`, but only while a place is free. For a request that goes on either way. */
  tryResume(): boolean {
    if (this.#inflight >= this.#inflight_open_max) return false;
    this.resume();
    return true;
  }

  /**
   * Takes a place back after `leave`, for a request that kept its address meanwhile. Never refused: such requests may
   * exceed `inflight_max` by the number that may wait in that way.
   */
  reenter(address?: ClientAddress): void {
    this.resume();
    if (address !== undefined) address.inflight++;
  }

  /** When a request refused for a rate should be sent again. */
  retryAfter_ms(address?: ClientAddress): number {
    return Math.max(this.#bucket?.retryAfter_ms(1) ?? 0, address?.bucket?.retryAfter_ms(1) ?? 0);
  }

  /** Lets a connection in. Without an address it counts only among all connections. */
  tryConnect(ip?: string): ConnectResult {
    touch(this);
    if (this.#connections >= this.#connections_max) return this.#refuse('conns_max');
    if (ip !== undefined) {
      const address = this.#addresses.get(ip);
      if (address.connections >= this.#connections_per_ip_max) return this.#refuse('conn_limit');
      address.connections++;
    }
    this.#connections++;
    return 'ok';
  }

  /** A connection closed. The address is the one it is counted under, if it is. */
  disconnect(ip?: string): void {
    touch(this);
    assert(this.#connections > 0, 'a connection closes once');
    if (ip !== undefined) this.uncount(ip);
    this.#connections--;
  }

  /** A connection stays open but no longer counts for its address, because it showed a capability. */
  uncount(ip: string): void {
    touch(this);
    const address = this.#addresses.find(ip);
    assert(address !== undefined && address.connections > 0, `a connection of ${ip} is counted`);
    address.connections--;
    this.#addresses.tidy(address);
  }

  /** The bucket that `tryEnter` spends from. */
  get #entryBucket(): TokenBucket | undefined {
    return this.#charges_late ? undefined : this.#bucket;
  }

  #refusalNow(address: ClientAddress | undefined, caller: Caller): Exclude<EnterResult, 'ok'> | undefined {
    if (this.#inflight >= (caller === 'open' ? this.#inflight_open_max : this.#inflight_max)) return 'inflight_limit';
    if (address === undefined) return undefined;
    if (address.inflight >= this.#inflight_per_ip_max) return 'address_limit';
    return this.#addresses.hasToken(address) ? undefined : 'address_rate_limited';
  }

  #spend(bucket: TokenBucket): boolean {
    if (this.#in_hand === 0) this.#in_hand = bucket.takeUpTo(Math.max(1, this.#in_hand_max));
    if (this.#in_hand === 0) return false;
    this.#in_hand--;
    return true;
  }

  #refuse<Code extends AdmissionRefusal>(code: Code): Code {
    this.refusals[code]++;
    return code;
  }
}

function halfOf(rate_per_s: number): number {
  return Math.max(1, Math.ceil(rate_per_s / 2));
}
