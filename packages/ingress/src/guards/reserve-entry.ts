/**
 * Admits a service of this node to the in-flight reserve with the first request of a connection, when all open permits,
 * or those of its address, are taken.
 *
 * Contract: a request that found no permit and carries an `Authorization` header is routed without one. The pipeline
 * checks its capability before any queue and before the body is read: a capability of a service enters the reserve; any
 * other request gets the refusal that it would have had. A client behind a trusted proxy is not checked: its capability
 * would mark the connection as internal, which carries the requests of other clients too.
 * Bound: `CHECKS_MAX` concurrent checks, half of them for one address. A slot is free again one event loop iteration
 * after its check, so that forged capabilities cost at most that many checks per iteration.
 * Overflow: refused without a check.
 *
 *   const pending = reserve.begin(ticket, view, refused, refusal);
 *   if (pending === undefined) return refuse(refusal);
 *   const permit = InflightPermit.pending(admission, pending); // permit.enterReserve(), or permit.end()
 */
import { sched } from '@ron/kernel';
import type { ClientAddress, EnterResult, RonError } from '@ron/kernel';
import type { HeaderView } from './header-scan.ts';
import { SlotLimit } from './slot-limit.ts';
import type { Ticket } from '../connection/connection.ts';

const CHECKS_MAX = 8;
/** Delay of the refusal for an address over its limits: a connection that retries gets five per second. */
const ADDRESS_REFUSAL_MS = 200;

/** A request that waits for the check of its capability. */
export interface PendingEntry {
  /** The answer if the capability does not belong to a service. */
  readonly refusal: RonError;
  /** The check is done, or the request ended before. Called once. */
  checked(): void;
}

export class ReserveEntry {
  readonly #slots = new SlotLimit(CHECKS_MAX, () => undefined);

  /** Undefined: refuse the request now. */
  begin(ticket: Ticket, view: HeaderView, refused: EnterResult, refusal: RonError): PendingEntry | undefined {
    // The rate limit of the listener applies to services too.
    if (ticket.caller === 'internal' || view.authorization === undefined || refused === 'rate_limited')
      return undefined;
    const { address } = ticket;
    if (!this.#slots.tryTake(address)) return undefined;
    return { refusal, checked: () => this.#giveLater(address) };
  }

  #giveLater(address: ClientAddress | undefined): void {
    void sched.pause('ingress-reserve').then(() => this.#slots.give(address));
  }
}

/**
 * Delays the refusal for an address over its own limits: a client that retries at once would otherwise take CPU time
 * from all others. The request holds only its connection meanwhile.
 */
export function refusalDelay_ms({ code }: RonError): number {
  return code === 'address_limit' || code === 'address_rate_limited' ? ADDRESS_REFUSAL_MS : 0;
}
