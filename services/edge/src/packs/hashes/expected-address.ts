/** The address that the owner of a pack expects it to have. */
import { RonError } from '@ron/kernel/core';
import type { Address } from '@ron/proto';

/** Throws `address_mismatch` if the pack has another address. */
export function requireExpected(address: Address, expect: Address | undefined): void {
  if (expect === undefined || expect === address) return;
  throw new RonError('address_mismatch', `the pack has the address ${address}, expected ${expect}`);
}
