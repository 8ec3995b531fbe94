/** Turns the refusals of a capability checker into errors for the client. */
import { RonError } from '@ron/kernel';
import type { AccessRefusal } from '@ron/proto';

export function refusalError(refusal: AccessRefusal): RonError {
  const { code, reason, cause, retry_after_ms } = refusal;
  return new RonError(code, reason, {
    ...(cause !== undefined && { reason: cause }),
    ...(retry_after_ms !== undefined && { retry_after_ms }),
  });
}

/** Throws when phase 2 refused. */
export function insist(refusal: AccessRefusal | undefined): void {
  if (refusal !== undefined) throw refusalError(refusal);
}
