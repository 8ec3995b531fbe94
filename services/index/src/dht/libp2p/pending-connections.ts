/**
 * Inbound connections that have not proven the network key yet: any host can open them.
 *
 * Contract: `admits` counts a connection until `onMember` or its end. Bound: `PER_HOST_MAX` of one host, the next is refused;
 * `TOTAL_MAX` of all hosts, beyond that the oldest one is cut, so that silent sockets lock out no member: its handshake takes
 * milliseconds. The time limit of libp2p ends each.
 */
import type { MultiaddrConnection } from '@libp2p/interface';
import { RonError } from '@ron/kernel';
import { endpointOf } from './wire/addresses.ts';

/** Nodes of one machine start together. */
const PER_HOST_MAX = 16;
const TOTAL_MAX = 512;
/** Hex digits: a host can use all addresses of its IPv6 network. */
const IP6_NETWORK_DIGITS = 16;
const IP4_DIGITS = 8;

export type Pending = Pick<MultiaddrConnection, 'remoteAddr' | 'abort' | 'addEventListener'>;

export class PendingConnections {
  /** To the host; the oldest first. */
  readonly #hosts = new Map<Pending, string>();
  readonly #counts = new Map<string, number>();

  get size(): number {
    return this.#hosts.size;
  }

  admits(connection: Pending): boolean {
    const host = hostOf(connection);
    const count = this.#counts.get(host) ?? 0;
    if (count >= PER_HOST_MAX) return false;
    if (this.#hosts.size >= TOTAL_MAX) this.#cutOldest();
    this.#hosts.set(connection, host);
    this.#counts.set(host, (this.#counts.get(host) ?? 0) + 1);
    connection.addEventListener('close', () => this.#release(connection), { once: true });
    return true;
  }

  /** The peer holds the network key. */
  onMember(connection: Pending): void {
    this.#release(connection);
  }

  #cutOldest(): void {
    const oldest = this.#hosts.keys().next().value!;
    this.#release(oldest);
    oldest.abort(new RonError('busy', 'too many connections wait for their handshake', { op: 'dht_inbound' }));
  }

  #release(connection: Pending): void {
    const host = this.#hosts.get(connection);
    if (host === undefined) return;
    this.#hosts.delete(connection);
    const count = this.#counts.get(host)! - 1;
    if (count === 0) this.#counts.delete(host);
    else this.#counts.set(host, count);
  }
}

/** Connections without an IP count as one host. */
function hostOf({ remoteAddr }: Pending): string {
  const { ip = '' } = endpointOf(remoteAddr.bytes) ?? {};
  return ip.length > IP4_DIGITS ? ip.slice(0, IP6_NETWORK_DIGITS) : ip;
}
