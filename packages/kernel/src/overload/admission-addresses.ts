/**
 * The client addresses that hold connections or requests, each with its counts and, when configured, a token bucket.
 *
 * Contract: an address has one entry while it holds connections or requests, while a caller holds the entry, and until
 * its bucket is full again. Two holders of one address always see the same entry.
 * Bound: one entry for each address that holds something, which the limits of `Admission` bound, and at most
 * `ADDRESSES_IDLE_MAX` entries that only wait for their bucket to fill. Overflow: the entry that has been idle longest is
 * evicted, so that address starts with a full bucket again.
 *
 * One address stands for one subscriber: an IPv4 address, or a /64 of IPv6. An IPv4-mapped IPv6 address
 * (::ffff:192.0.2.1) counts as the IPv4 address, a zone (%eth0) is ignored.
 *
 *   const addresses = new AddressTable({ rate_per_s: 50, burst: 100 });
 *   const address = addresses.hold('192.0.2.1');
 *   if (addresses.hasToken(address)) addresses.takeToken(address);
 *   addresses.release(address);
 */
import { assert } from '../errors.ts';
import { TokenBucket } from './token-bucket.ts';

export interface AddressRate {
  readonly rate_per_s: number;
  readonly burst: number;
}

/** One client address. The counts belong to `Admission`; other code only passes the entry on. */
export interface ClientAddress {
  readonly group: string;
  /** Connections that count against the limit of the address. */
  connections: number;
  /** Requests that count against its share of the in-flight places. */
  inflight: number;
  /** Holders that need the entry even if both counts are zero. */
  holds: number;
  /** Created by the first request of an address that is limited in rate. */
  bucket: TokenBucket | undefined;
}

export const ADDRESSES_IDLE_MAX = 4096;
/** Idle entries that are examined whenever one is added: more than one, so that the full ones run out. */
const EXAMINED = 2;

export class AddressTable {
  readonly #rate: AddressRate | undefined;
  readonly #entries = new Map<string, ClientAddress>();
  /** Entries that are kept only for their bucket, the longest idle first. */
  readonly #idle = new Map<string, ClientAddress>();

  constructor(rate?: AddressRate) {
    this.#rate = rate;
    // A rate that makes no sense is refused at start, not with the first request.
    if (rate !== undefined) this.#newBucket(rate);
  }

  get size(): number {
    return this.#entries.size;
  }

  /** The entry of `ip`, which stays until `release`. */
  hold(ip: string): ClientAddress {
    const entry = this.get(ip);
    entry.holds++;
    return entry;
  }

  /** The entry of `ip`, for a caller that raises one of its counts at once. */
  get(ip: string): ClientAddress {
    const group = addressGroup(ip);
    let entry = this.#entries.get(group);
    if (entry === undefined) {
      entry = { group, connections: 0, inflight: 0, holds: 0, bucket: undefined };
      this.#entries.set(group, entry);
    } else this.#idle.delete(group);
    return entry;
  }

  /** The entry of `ip` if it has one. */
  find(ip: string): ClientAddress | undefined {
    return this.#entries.get(addressGroup(ip));
  }

  release(entry: ClientAddress): void {
    assert(entry.holds > 0, 'an address is released once');
    entry.holds--;
    this.tidy(entry);
  }

  /** Removes the entry if nothing needs it. Called after a count went down. */
  tidy(entry: ClientAddress): void {
    if (entry.holds > 0 || entry.connections > 0 || entry.inflight > 0) return;
    if (entry.bucket === undefined || isFull(entry.bucket)) {
      this.#entries.delete(entry.group);
      return;
    }
    this.#idle.set(entry.group, entry);
    let examined = 0;
    for (const oldest of this.#idle.values()) {
      if (this.#idle.size > ADDRESSES_IDLE_MAX || isFull(oldest.bucket!)) this.#evict(oldest);
      if (++examined === EXAMINED) return;
    }
  }

  hasToken(entry: ClientAddress): boolean {
    if (this.#rate === undefined) return true;
    entry.bucket ??= this.#newBucket(this.#rate);
    return entry.bucket.retryAfter_ms(1) === 0;
  }

  /** Spends the token that `hasToken` found. */
  takeToken(entry: ClientAddress): void {
    entry.bucket?.tryTake(1);
  }

  #evict(entry: ClientAddress): void {
    this.#idle.delete(entry.group);
    this.#entries.delete(entry.group);
  }

  #newBucket({ rate_per_s, burst }: AddressRate): TokenBucket {
    return new TokenBucket('address', { rate_per_s, burst });
  }
}

function isFull(bucket: TokenBucket): boolean {
  return bucket.retryAfter_ms(bucket.burst) === 0;
}

const MAPPED = /^::ffff:(?:(\d+\.\d+\.\d+\.\d+)|([0-9a-f]{1,4}):([0-9a-f]{1,4}))$/i;

/** The name under which `ip` is counted: an IPv4 address, or the /64 of an IPv6 address. */
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
