/**
 * A read of the database during a lookup.
 *
 * Contract: without a DHT the read has the whole deadline, and its failure is that of the lookup. With one, a database that
 * fails or does not answer within `DB_SHARE` of the budget is passed over, and the answer is incomplete. If peers have nothing
 * either, its failure is that of the lookup.
 * Cancellation: the lookup stops waiting; the read ends by its own deadline.
 */
import { isRonError, RonError, type Deadline } from '@ron/kernel';
import type { Lookup } from './lookup.ts';

const DB_SHARE = 0.4;

export interface LocalRead<T> {
  readonly value: T | undefined;
  /** False if the database was passed over. */
  readonly complete: boolean;
  /** Why it was passed over. */
  readonly failure?: RonError;
}

export async function localRead<T>(
  { budget_ms }: Lookup,
  deadline: Deadline,
  hasDht: boolean,
  read: () => Promise<T | undefined>,
): Promise<LocalRead<T>> {
  if (!hasDht) return { value: await deadline.within(read()), complete: true };
  using step = deadline.child('db', budget_ms * DB_SHARE);
  try {
    return { value: await step.within(read()), complete: true };
  } catch (error) {
    if (deadline.remaining_ms === 0 || isRonError(error, 'internal')) throw error;
    const failure = isRonError(error)
      ? error
      : new RonError('timeout', 'the database does not answer', { cause: error });
    return { value: undefined, complete: false, failure };
  }
}
