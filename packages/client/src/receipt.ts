/** What a service says about an object that it stored. */
import { RonError } from '@ron/kernel/core';
import { parseAddress, type Address } from '@ron/proto';

export interface Durability {
  /** Whether the bytes survive a power failure. */
  readonly fsynced: boolean;
  readonly copies: number;
  readonly target: number;
}

export interface Receipt {
  readonly address: Address;
  readonly size: number;
  /** Undefined when the service did not say. */
  readonly durability: Durability | undefined;
}

/** `fsynced=1; copies=1; target=1` */
export function parseDurability(header: string | null): Durability | undefined {
  const match = /^fsynced=([01]); copies=(\d{1,4}); target=(\d{1,4})$/.exec(header ?? '');
  if (match === null) return undefined;
  return { fsynced: match[1] === '1', copies: Number(match[2]), target: Number(match[3]) };
}

/** The address in an answer to a write, checked against the one that the bytes have. */
export function requireSameAddress(stated: unknown, computed: Address): Address {
  if (parseAddress(stated) === computed) return computed;
  throw new RonError('integrity', `the server stored other bytes than were sent: they have the address ${computed}`, {
    details: { expected: computed, actual: parseAddress(stated) },
  });
}
