/**
 * Who may come in: requests in flight, requests per second, connections, and connections of one address.
 *
 * Promise: never more than `connections_max` connections, never more than `connections_per_ip_max` of one address, never
 * more requests let in than `inflight_max` at once and `rps_limit` x t + `rps_burst` in any window. Each refusal has a
 * code of its own and is counted under it. A request refused for one reason uses up nothing of the others.
 * Bound: plain numbers, and one map entry for each address that holds a connection (removed with its last one), at most
 * `ips_max`. Overflow: refused, at once. Cancellation: nothing waits here.
 *
 * "One address" is what one subscriber usually holds: an IPv4 address, or a /64 of IPv6. An IPv4-mapped IPv6 address
 * (::ffff:192.0.2.1) counts as the IPv4 address, a zone (%eth0) is ignored.
 *
 * `tryEnter` is on the path of every request, also of those answered from RAM, and reading the clock costs more than all
 * the rest of it. So tokens of the rate are drawn from the bucket some at a time and kept in hand:
 *
 *   rps_burst = what the bucket holds + what is in hand       (both together never exceed it, so the promise stands)
 *
 * The price: after a pause the hand may not be full, and then up to a sixteenth of the burst is missing.
 */
import { assert } from './errors.ts';
import { touch } from './sched.ts';
import { TokenBucket } from './token-bucket.ts';

export interface AdmissionInit {
  /** Requests that execute or stream at once. */
  inflight_max: number;
  /** Requests per second. Default: no limit. */
  rps_limit?: number | undefined;
  /** Requests at once on top of the rate. Default: half of `rps_limit`. */
  rps_burst?: number | undefined;
  connections_max: number;
  connections_per_ip_max: number;
  /** Addresses that may hold connections. Default: `connections_max`, which is no further limit. */
  ips_max?: number;
}

export type EnterResult = 'ok' | 'inflight_limit' | 'rate_limited';
export type ConnectResult = 'ok' | 'conn_limit' | 'conns_max';
export type AdmissionRefusal = Exclude<EnterResult | ConnectResult, 'ok'>;

const IN_HAND_MAX = 16;

export class Admission {
  /** Refusals since the start, by code. */
  readonly refusals: Record<AdmissionRefusal, number> = {
    inflight_limit: 0,
    rate_limited: 0,
    conn_limit: 0,
    conns_max: 0,
  };
  readonly #inflight_max: number;
  readonly #connections_max: number;
  readonly #connections_per_ip_max: number;
  readonly #ips_max: number;
  readonly #byAddress = new Map<string, number>();
  readonly #bucket: TokenBucket | undefined;
  readonly #in_hand_max: number = 0;
  #in_hand = 0;
  #inflight = 0;
  #connections = 0;

  constructor(init: AdmissionInit) {
    for (const limit of [init.inflight_max, init.connections_max, init.connections_per_ip_max]) {
      assert(Number.isInteger(limit) && limit >= 1, 'admission: a limit is a whole number >= 1');
    }
    this.#inflight_max = init.inflight_max;
    this.#connections_max = init.connections_max;
    this.#connections_per_ip_max = init.connections_per_ip_max;
    this.#ips_max = init.ips_max ?? init.connections_max;
    if (init.rps_limit === undefined) return;
    const burst = init.rps_burst ?? Math.max(1, Math.ceil(init.rps_limit / 2));
    this.#in_hand_max = Math.min(IN_HAND_MAX, Math.floor(burst / 16));
    this.#in_hand = this.#in_hand_max;
    this.#bucket = new TokenBucket('rps', { rate_per_s: init.rps_limit, burst: burst - this.#in_hand_max });
  }

  /** Requests that hold a place. */
  get inflight(): number {
    return this.#inflight;
  }

  get connections(): number {
    return this.#connections;
  }

  /** Addresses that hold connections. */
  get addresses(): number {
    return this.#byAddress.size;
  }

  /** Whether `tryEnter` would let a request in now. Asking counts nothing. */
  get hasRoom(): boolean {
    if (this.#inflight >= this.#inflight_max) return false;
    return this.#bucket === undefined || this.#in_hand > 0 || this.#bucket.retryAfter_ms(1) === 0;
  }

  /** Lets a request in, which then calls `leave` exactly once. */
  tryEnter(): EnterResult {
    touch(this);
    if (this.#inflight >= this.#inflight_max) {
      this.refusals.inflight_limit++;
      return 'inflight_limit';
    }
    if (this.#bucket !== undefined && !this.#spend(this.#bucket)) {
      this.refusals.rate_limited++;
      return 'rate_limited';
    }
    this.#inflight++;
    return 'ok';
  }

  leave(): void {
    touch(this);
    assert(this.#inflight > 0, 'a request leaves once');
    this.#inflight--;
  }

  /**
   * Takes a place back that was left while the request waited in a queue. Never refused, because accepted work is not
   * dropped: those who resume may stand above `inflight_max`, as many as the queue has workers.
   */
  reenter(): void {
    touch(this);
    this.#inflight++;
  }

  /** When a request refused as `rate_limited` should come again. */
  retryAfter_ms(): number {
    return this.#bucket?.retryAfter_ms(1) ?? 0;
  }

  /** Lets a connection in. Without an address it counts only among all connections. */
  tryConnect(ip?: string): ConnectResult {
    touch(this);
    if (this.#connections >= this.#connections_max) return this.#refuse('conns_max');
    if (ip !== undefined) {
      const address = addressGroup(ip);
      const held = this.#byAddress.get(address) ?? 0;
      if (held >= this.#connections_per_ip_max) return this.#refuse('conn_limit');
      if (held === 0 && this.#byAddress.size >= this.#ips_max) return this.#refuse('conns_max');
      this.#byAddress.set(address, held + 1);
    }
    this.#connections++;
    return 'ok';
  }

  /** A connection closed. The address is the one it is counted under, none if it is not. */
  disconnect(ip?: string): void {
    touch(this);
    assert(this.#connections > 0, 'a connection closes once');
    if (ip !== undefined) this.uncount(ip);
    this.#connections--;
  }

  /** A connection stays open but counts no longer for its address: it turned out to be one of our own services. */
  uncount(ip: string): void {
    touch(this);
    const address = addressGroup(ip);
    const held = this.#byAddress.get(address);
    assert(held !== undefined, `a connection of ${address} is counted`);
    if (held > 1) this.#byAddress.set(address, held - 1);
    else this.#byAddress.delete(address);
  }

  #spend(bucket: TokenBucket): boolean {
    if (this.#in_hand === 0) this.#in_hand = bucket.takeUpTo(Math.max(1, this.#in_hand_max));
    if (this.#in_hand === 0) return false;
    this.#in_hand--;
    return true;
  }

  #refuse(code: 'conn_limit' | 'conns_max'): ConnectResult {
    this.refusals[code]++;
    return code;
  }
}

const MAPPED = /^::ffff:(?:(\d+\.\d+\.\d+\.\d+)|([0-9a-f]{1,4}):([0-9a-f]{1,4}))$/i;

/** The address under which connections of `ip` are counted: IPv4 as it is, IPv6 as its /64. */
export function addressGroup(ip: string): string {
  if (!ip.includes(':')) return ip;
  const zone = ip.indexOf('%');
  const address = zone === -1 ? ip : ip.slice(0, zone);
  const mapped = MAPPED.exec(address);
  if (mapped !== null) return mapped[1] ?? dotted(mapped[2]!, mapped[3]!);
  const [head = '', tail] = address.split('::');
  const groups = wordsOf(head);
  if (tail !== undefined) {
    const after = wordsOf(tail);
    while (groups.length + after.length < 8) groups.push('0');
    groups.push(...after);
  }
  const prefix = groups.slice(0, 4).map((group) => group.replace(/^0+(?=.)/, '').toLowerCase());
  return `${prefix.join(':')}::/64`;
}

/** The groups of one side of '::'. A dotted end is two of them; which ones does not matter, they are past the /64. */
function wordsOf(side: string): string[] {
  return side === '' ? [] : side.replace(/[^:]*\..*$/, '0:0').split(':');
}

function dotted(high: string, low: string): string {
  const [a, b] = [Number.parseInt(high, 16), Number.parseInt(low, 16)];
  return `${a >> 8}.${a & 255}.${b >> 8}.${b & 255}`;
}
