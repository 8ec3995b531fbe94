/** Checks the address in a receipt. */
import { RonError } from '@ron/kernel/core';
import { parseAddress, type Address } from '@ron/proto';

/** The address in an answer to a write, checked against the address of the sent bytes. */
export function requireSameAddress(stated: unknown, computed: Address): Address {
  if (parseAddress(stated) === computed) return computed;
  throw new RonError('integrity', `the server stored other bytes than those sent: their address is ${computed}`, {
    details: { expected: computed, actual: parseAddress(stated) },
  });
}
