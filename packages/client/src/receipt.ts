/** What a service says about an object that it stored. */
import { RonError } from '@ron/kernel/core';
import { parseAddress, type Address, type Durability } from '@ron/proto';

export interface Receipt {
  readonly address: Address;
  readonly size: number;
  /** Undefined when the service did not say. */
  readonly durability: Durability | undefined;
}

/** The address in an answer to a write, checked against the one that the bytes have. */
export function requireSameAddress(stated: unknown, computed: Address): Address {
  if (parseAddress(stated) === computed) return computed;
  throw new RonError('integrity', `the server stored other bytes than were sent: they have the address ${computed}`, {
    details: { expected: computed, actual: parseAddress(stated) },
  });
}
