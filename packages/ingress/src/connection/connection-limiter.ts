/**
 * Decides which connections are accepted, and against which limits their requests count.
 *
 * Contract: at most `max_conns` connections, and at most `connection_limit_per_ip` from one address. A connection that
 * presents a valid capability no longer counts against the limit of its address. For callers whose address is already at
 * its limit, a few more connections are accepted on probation: the first request must carry a capability, otherwise it
 * is refused and the connection is closed. A connection that presents a capability of a service of this node, and every
 * peer of a Unix socket, is internal: its requests are not counted per address and may use the in-flight reserve. The
 * capability of a user grants neither.
 * Bound: `PROBATION_MAX` connections on probation, `PROBATION_PER_IP_MAX` of one address (or /64 of IPv6).
 * Overflow: 429, and the connection is closed before anything is read.
 */
import type { Socket } from 'node:net';
import { addressGroup, RonError, sched } from '@ron/kernel';
import type { Admission } from '@ron/kernel';
import type { AccessGrant } from '@ron/proto';
import type { BindTarget } from '../listen/bind.ts';
import { normalizeIp } from '../guards/client-ip.ts';
import type { Ticket } from './connection.ts';

const PROBATION_MAX = 64;
const PROBATION_PER_IP_MAX = 8;
/** Peers of a Unix socket have no address; its directory decides who may connect. */
export const LOCAL_PEER = 'unix';

export class ConnectionLimiter {
  readonly #admission: Admission;
  readonly #is_trusted_proxy: (ip: string) => boolean;
  /** Connections on probation by address group; groups without any have no entry. */
  readonly #probation = new Map<string, number>();
  #probation_total = 0;

  constructor(admission: Admission, is_trusted_proxy: (ip: string) => boolean) {
    this.#admission = admission;
    this.#is_trusted_proxy = is_trusted_proxy;
  }

  /** Returns a ticket for the lifetime of the connection, or the error to refuse it with. `ip`: the result of `peerOf`. */
  admit(ip: string): Ticket | RonError {
    // A proxy or a local peer forwards for many clients.
    const key = ip === LOCAL_PEER || this.#is_trusted_proxy(ip) ? undefined : ip;
    // [index I-14] The connections of one address are limited.
    switch (this.#admission.tryConnect(key)) {
      case 'ok':
        return this.#ticket(ip, key, false);
      case 'conns_max':
        return new RonError('conns_max', 'the limit on open connections is reached');
      case 'conn_limit':
        break;
    }
    const group = addressGroup(ip);
    const mine = this.#probation.get(group) ?? 0;
    if (mine >= PROBATION_PER_IP_MAX || this.#probation_total >= PROBATION_MAX) return connLimit();
    if (this.#admission.tryConnect(undefined) !== 'ok') return connLimit();
    this.#probation.set(group, mine + 1);
    this.#probation_total += 1;
    return this.#ticket(ip, ip, true);
  }

  #ticket(ip: string, key: string | undefined, probation: boolean): Ticket {
    return {
      ip,
      opened_ms: sched.now_ms(),
      address: key === undefined ? undefined : this.#admission.hold(key),
      caller: ip === LOCAL_PEER ? 'internal' : 'open',
      counted: key !== undefined && !probation,
      probation,
    };
  }

  #endProbation(ticket: Ticket): void {
    if (!ticket.probation) return;
    ticket.probation = false;
    this.#probation_total -= 1;
    const group = addressGroup(ticket.ip);
    const left = (this.#probation.get(group) ?? 1) - 1;
    if (left === 0) this.#probation.delete(group);
    else this.#probation.set(group, left);
  }

  /** The connection presented a valid capability. */
  onCapability(ticket: Ticket, grant: AccessGrant): void {
    this.#endProbation(ticket);
    if (grant.is_service === true) {
      ticket.caller = 'internal';
      this.#releaseAddress(ticket);
    }
    if (!ticket.counted) return;
    ticket.counted = false;
    this.#admission.uncount(ticket.ip);
  }

  /** The connection is closed. */
  release(ticket: Ticket): void {
    this.#endProbation(ticket);
    this.#releaseAddress(ticket);
    this.#admission.disconnect(ticket.counted ? ticket.ip : undefined);
    ticket.counted = false;
  }

  #releaseAddress(ticket: Ticket): void {
    if (ticket.address !== undefined) this.#admission.release(ticket.address);
    ticket.address = undefined;
  }
}

export function connLimit(): RonError {
  return new RonError('conn_limit', 'this address has reached its limit on open connections');
}

/**
 * The normalized address of a peer, or `LOCAL_PEER`. The kind of the listener decides, because a TCP peer that has
 * reset its connection has no address either: for that one the result is undefined.
 */
export function peerOf(socket: Socket, kind: BindTarget['kind']): string | undefined {
  return kind === 'unix' ? LOCAL_PEER : normalizeIp(socket.remoteAddress ?? '');
}
