/**
 * Lets a service of this node into the in-flight reserve with the first request of a connection, when all open places, or
 * those of its address, are taken.
 *
 * Contract: a request that found no place and carries an `Authorization` header is routed without one. The pipeline checks
 * its capability before any queue and before the body is read: the capability of a service enters the reserve; every other
 * request ends with the refusal that it would have had. A client behind a trusted proxy is not checked: the connection
 * would be vouched for, and it carries the requests of others.
 * Bound: `CHECKS_MAX` checks at once, half of them for one address. A slot is free again in the turn of the event loop
 * after its check, so that forged capabilities cost at most that many checks in each turn. Overflow: refused unchecked.
 *
 *   const pending = reserve.begin(address, refusal);
 *   if (pending === undefined) return refuse(refusal);
 *   const place = Place.pending(admission, pending); // place.enterReserve(), or place.end()
 */
import { sched } from '@ron/kernel';
import type { ClientAddress, EnterResult, RonError } from '@ron/kernel';
import type { HeaderView } from './header-scan.ts';
import { SlotLimit } from './slot-limit.ts';
import type { Ticket } from '../connection/connection.ts';

const CHECKS_MAX = 8;
/** How long an address over its limits waits for the refusal: a connection that repeats gets five a second. */
const ADDRESS_REFUSAL_MS = 200;

/** A request that waits for the verdict about its capability. */
export interface PendingEntry {
  /** The answer if its capability is not that of a service. */
  readonly refusal: RonError;
  /** The verdict is there, or the request ended before. Called once. */
  checked(): void;
}

export class ReserveEntry {
  readonly #slots = new SlotLimit(CHECKS_MAX, () => undefined);

  /** Undefined: the request is refused now. */
  begin(ticket: Ticket, view: HeaderView, refused: EnterResult, refusal: RonError): PendingEntry | undefined {
    // The rate of the listener holds for services, too.
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
 * An address that is over its own limits waits for the refusal: a client that repeats at once would otherwise take the
 * processor from all others. It holds its connection, and nothing else.
 */
export function refusalDelay_ms({ code }: RonError): number {
  return code === 'address_limit' || code === 'address_rate_limited' ? ADDRESS_REFUSAL_MS : 0;
}
