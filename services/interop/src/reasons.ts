/** The reasons of refusals: `X-Reason`, the member `reason` of a problem, and `rejected_total{reason}`. */
import type { ReasonsInit } from '@ron/ingress';
import { isRonError } from '@ron/kernel';
import { REJECT_REASONS, type RejectReason } from '@ron/proto';

const BY_CODE: NonNullable<ReasonsInit<RejectReason>['by_code']> = {
  unauthorized: 'BAD_ORIGIN',
  forbidden: 'SCOPE_MISMATCH',
  payload_too_large: 'BODY_LIMIT',
  decompress_cap: 'DECOMP_LIMIT',
  rate_limited: 'RATE_LIMIT',
  address_rate_limited: 'RATE_LIMIT',
  inflight_limit: 'BUSY',
  address_limit: 'BUSY',
  busy: 'BUSY',
  backpressure: 'BACKPRESSURE',
  draining: 'BACKPRESSURE',
  not_ready: 'DOWNSTREAM_UNAVAILABLE',
  breaker_open: 'DOWNSTREAM_UNAVAILABLE',
  bad_gateway: 'DOWNSTREAM_UNAVAILABLE',
  timeout: 'DOWNSTREAM_UNAVAILABLE',
};

export const REASONS: ReasonsInit<RejectReason> = {
  names: REJECT_REASONS,
  by_code: BY_CODE,
  by_cause: { expired: 'EXPIRED_TOKEN', revoked: 'EXPIRED_TOKEN' },
};

/** The reason of a refused webhook, for lists and audit events. */
export function reasonOf(error: unknown): RejectReason | undefined {
  if (!isRonError(error)) return undefined;
  return REJECT_REASONS.find((name) => name === error.reason) ?? BY_CODE[error.code];
}
