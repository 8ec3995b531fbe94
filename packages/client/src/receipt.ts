/** Checks the address in a receipt of storage. */
import { RonError } from '@ron/kernel/core';
import { parseAddress, type Address, type Receipt } from '@ron/proto';
import type { Answer } from './answer.ts';

/** The address in an answer to a write, checked against the address of the sent bytes. */
export function requireSameAddress(stated: unknown, computed: Address): Address {
  if (parseAddress(stated) === computed) return computed;
  throw new RonError('integrity', `the server stored other bytes than those sent: their address is ${computed}`, {
    details: { expected: computed, actual: parseAddress(stated) },
  });
}

/** The receipt in an answer to a write. */
export async function receiptOf(response: Answer, computed: Address): Promise<Receipt> {
  const { address, size, durability } = (await response.json()) as Receipt;
  return { address: requireSameAddress(address, computed), size, durability };
}
