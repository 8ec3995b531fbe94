/** The reasons of refusals: `X-Reason`, the member `reason` of a problem, and `edge_rejects_total{reason}`. */
import type { ReasonsInit } from '@ron/ingress';

export const REASON_NAMES = [
  'amnesia',
  'body_cap',
  'decompress_cap',
  'etag_invalid',
  'invalid_range',
  'not_allowed',
  'rate_limit',
  'timeout',
] as const;

export type Reason = (typeof REASON_NAMES)[number];

export const REASONS: ReasonsInit<Reason> = {
  metric: 'edge_rejects_total',
  names: REASON_NAMES,
  by_code: {
    payload_too_large: 'body_cap',
    decompress_cap: 'decompress_cap',
    range_not_satisfiable: 'invalid_range',
    rate_limited: 'rate_limit',
    timeout: 'timeout',
  },
};
