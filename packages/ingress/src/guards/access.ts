/** Turns the refusals of a capability checker into errors for the client. */
import { RonError } from '@ron/kernel';
import type { AccessRefusal } from '@ron/proto';

export function refusalError(refusal: AccessRefusal): RonError {
  const wait_ms = refusal.retry_after_ms;
  return new RonError(refusal.code, refusal.reason, wait_ms === undefined ? {} : { retry_after_ms: wait_ms });
}

/** Throws when phase 2 refused. */
export function insist(refusal: AccessRefusal | undefined): void {
  if (refusal !== undefined) throw refusalError(refusal);
}
