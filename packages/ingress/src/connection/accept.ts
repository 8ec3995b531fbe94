/**
 * Decides which connections are accepted, and which limits their requests count against.
 *
 * Contract: at most `max_conns` connections, and at most `connection_limit_per_ip` of one address. A connection that shows
 * a valid capability no longer counts against the limit of its address. So that such a caller gets through when its
 * address is full, a few connections above that limit are let in on probation: their first request must carry a
 * capability, or is refused and the connection closed. A connection that shows a capability of a service of this node,
 * and every peer of a Unix socket, is internal: its requests are not counted per address and may use the in-flight
 * reserve. The capability of a user opens neither.
 * Bound: `PROBATION_MAX` connections on probation, `PROBATION_PER_IP_MAX` of one address (or /64 of IPv6). Overflow: an answer 429 and a
 * close before anything is read.
 */
import type { Socket } from 'node:net';
import { addressGroup, RonError, sched } from '@ron/kernel';
import type { Admission } from '@ron/kernel';
import type { Grant } from '../guards/access.ts';
import type { BindTarget } from '../listen/bind.ts';
import { normalizeIp } from '../guards/client-ip.ts';
import type { Ticket } from './connection.ts';

const PROBATION_MAX = 64;
const PROBATION_PER_IP_MAX = 8;
/** Peers of a Unix socket have no address; its directory decides who may connect. */
export const LOCAL_PEER = 'unix';

export class Gatekeeper {
  readonly #admission: Admission;
  readonly #is_trusted_proxy: (ip: string) => boolean;
  /** How many connections of each address group are on probation; those with none are not listed. */
  readonly #probation = new Map<string, number>();
  #probation_total = 0;

  constructor(admission: Admission, is_trusted_proxy: (ip: string) => boolean) {
    this.#admission = admission;
    this.#is_trusted_proxy = is_trusted_proxy;
  }

  /** A ticket to hold while the connection is open, or why there is none. `ip`: as `peerOf` returned it. */
  admit(ip: string): Ticket | RonError {
    // A proxy or a local peer speaks for many clients.
    const key = ip === LOCAL_PEER || this.#is_trusted_proxy(ip) ? undefined : ip;
    switch (this.#admission.tryConnect(key)) {
      case 'ok':
        return this.#ticket(ip, key, false);
      case 'conns_max':
        return new RonError('conns_max', 'as many connections as allowed are open');
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

  /** The connection showed a valid capability. */
  vouch(ticket: Ticket, grant: Grant): void {
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
  return new RonError('conn_limit', 'this address holds as many connections as allowed');
}

/**
 * The address of a peer in its one spelling, or `LOCAL_PEER`. The kind of the listener decides which: a TCP peer that has
 * reset its connection has no address either. For that one: undefined.
 */
export function peerOf(socket: Socket, kind: BindTarget['kind']): string | undefined {
  return kind === 'unix' ? LOCAL_PEER : normalizeIp(socket.remoteAddress ?? '');
}
