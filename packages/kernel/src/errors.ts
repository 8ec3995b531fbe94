/**
 * One table of every error that crosses a boundary: its stable code, HTTP status, whether a caller may retry, and the
 * metric that counts it. It covers the error taxonomies of all service specifications (the seeds); `docs/errors.md` is generated from it.
 */

export interface ErrorRow {
  /** HTTP status, or 0 when the error never reaches a client. */
  readonly status: number;
  readonly retryable: boolean;
  /** The metric that counts it, as in the seeds. */
  readonly metric: string;
  /** One sentence: when it happens. */
  readonly when: string;
}

const row = (status: number, retryable: boolean, metric: string, when: string): ErrorRow => ({
  status,
  retryable,
  metric,
  when,
});

const REJECTED = 'rejected_total{reason}';

export const ERRORS = {
  // Load: the request is valid, and the client may retry it.
  busy: row(
    429,
    true,
    'busy_rejections_total',
    'a work queue is full, or standing overload dropped the job before work began',
  ),
  inflight_limit: row(429, true, REJECTED, 'as many requests execute or stream as server.max_inflight allows'),
  address_limit: row(429, true, REJECTED, 'one address has as many requests in flight as its share allows'),
  rate_limited: row(429, true, REJECTED, 'requests come faster than the configured rate'),
  address_rate_limited: row(429, true, REJECTED, 'requests of one address come faster than its rate allows'),
  conn_limit: row(
    429,
    true,
    REJECTED,
    'one address holds as many connections as server.connection_limit_per_ip allows',
  ),
  conns_max: row(429, true, REJECTED, 'as many connections are open as max_conns allows'),
  paced: row(429, true, 'repair_wait_seconds', 'a token bucket is empty'),
  timeout: row(504, true, 'io_timeouts_total{op}', 'an operation did not end within its deadline'),
  request_timeout: row(408, true, 'io_timeouts_total{op}', 'the request did not arrive within its deadline'),
  // State: the service will not do it now.
  draining: row(503, true, REJECTED, 'the service is shutting down'),
  not_ready: row(503, true, REJECTED, 'a readiness gate is closed'),
  unhealthy: row(503, false, REJECTED, 'a critical task failed for good; the process has to be replaced'),
  canceled: row(503, false, 'tasks_canceled_total{kind}', 'shutdown or the caller ended the wait'),
  breaker_open: row(503, true, 'breaker_open_total{target}', 'the circuit breaker of a target is open'),
  bad_gateway: row(502, false, REJECTED, 'another server sent an invalid certificate or an invalid answer'),
  not_cached: row(
    504,
    false,
    REJECTED,
    'the request or the origin demands an answer that is cached and fresh, and there is none',
  ),
  no_route: row(503, true, REJECTED, 'no peer is known for the requested object'),
  unreachable: row(0, true, 'backoff_retries_total{op}', 'a peer took no connection, or broke it off'),
  backpressure: row(503, true, REJECTED, 'brownout sheds this lane first'),
  degraded_audit: row(
    503,
    false,
    'kms_audit_integrity_failed_total',
    'the audit log cannot take the entry: it is late or full, or the tenant has used its share',
  ),
  audit_integrity: row(
    503,
    false,
    'kms_audit_integrity_failed_total',
    'the audit log is shorter than, or differs from, the signed checkpoints; kms signs nothing until an operator resolves it',
  ),
  verify_cache_expired: row(
    503,
    true,
    'verify_cache_expired_total',
    'cached key material outlived its limit in an outage',
  ),
  storage_full: row(507, true, REJECTED, 'no volume has room for the write'),
  // Bounded internals that shed instead of growing.
  lagging: row(0, false, 'bus_lagged_total{topic}', 'a subscriber fell behind and lost its oldest events'),
  overflow: row(0, false, 'repair_skipped_total{reason}', 'a bounded plan had no room; it is planned again next time'),
  closed: row(503, false, REJECTED, 'the channel or service was closed'),
  // The request itself.
  bad_request: row(400, false, REJECTED, 'the request is malformed'),
  validation: row(400, false, REJECTED, 'the body or parameters do not fit the schema; unknown fields count'),
  bad_path: row(400, false, REJECTED, 'the path holds an encoding that could be read two ways'),
  bad_host: row(421, false, REJECTED, 'the Host header is not one this listener answers for'),
  unauthorized: row(401, false, REJECTED, 'no capability, or one that does not verify'),
  forbidden: row(403, false, REJECTED, 'the capability verifies but does not allow this'),
  reject_policy: row(403, false, 'edge_rejects_total{reason}', 'policy does not allow it'),
  not_found: row(404, false, REJECTED, 'nothing is there'),
  method_not_allowed: row(405, false, REJECTED, 'the route exists, the method does not'),
  not_acceptable: row(
    406,
    false,
    REJECTED,
    'the object has coded variants, and Accept-Encoding accepts none of its variants; identity is refused only by the weight 0 for it or for *; an object without coded variants is always sent; or Accept accepts no media type of the answer',
  ),
  conflict: row(409, false, REJECTED, 'it contradicts the stored state'),
  address_mismatch: row(
    409,
    false,
    REJECTED,
    'the bytes do not have the address they were sent to; nothing of them is kept',
  ),
  rotate_needed: row(409, false, REJECTED, 'a key was used as often as is safe; rotate it'),
  precondition_failed: row(412, false, REJECTED, 'If-Match or If-Unmodified-Since did not hold'),
  payload_too_large: row(413, false, REJECTED, 'the body is larger than the limit'),
  decompress_cap: row(413, false, REJECTED, 'the body expands beyond the ratio or size allowed'),
  uri_too_long: row(414, false, REJECTED, 'the request target is longer than the limit'),
  unsupported_media: row(415, false, REJECTED, 'the content type or encoding is not one this route reads'),
  range_not_satisfiable: row(416, false, REJECTED, 'the range lies outside the object'),
  expectation_failed: row(417, false, REJECTED, 'the Expect header is not 100-continue'),
  unprocessable: row(
    422,
    false,
    REJECTED,
    'an identifier in the request is malformed, or of a kind that the route does not serve',
  ),
  headers_too_large: row(431, false, REJECTED, 'the header section is larger than the limit'),
  // Ours.
  integrity: row(500, false, 'integrity_fail_total{reason}', 'stored bytes do not match their address'),
  internal: row(500, false, REJECTED, 'a defect; the corr_id finds it in the logs'),
} as const satisfies Record<string, ErrorRow>;

export type ErrorCode = keyof typeof ERRORS;

export interface RonErrorInit {
  cause?: unknown;
  /** The operation that failed, for example of a `timeout`. A short fixed word: it becomes a metric label. */
  op?: string;
  /** How long the caller should wait before it tries again, before jitter. */
  retry_after_ms?: number;
  /** A reason code of the service, for those whose seed has them. From a closed set: it becomes a metric label. */
  reason?: string;
  /** Further members of the problem answer. Never secrets. */
  details?: Readonly<Record<string, unknown>>;
}

export class RonError extends Error {
  override readonly name = 'RonError';
  readonly code: ErrorCode;
  readonly op: string | undefined;
  readonly retry_after_ms: number | undefined;
  readonly reason: string | undefined;
  readonly details: Readonly<Record<string, unknown>> | undefined;

  constructor(code: ErrorCode, message: string, init: RonErrorInit = {}) {
    super(message, init.cause === undefined ? undefined : { cause: init.cause });
    this.code = code;
    this.op = init.op;
    this.retry_after_ms = init.retry_after_ms;
    this.reason = init.reason;
    this.details = init.details;
  }

  get status(): number {
    return ERRORS[this.code].status;
  }

  get retryable(): boolean {
    return ERRORS[this.code].retryable;
  }
}

export function isRonError(error: unknown, code?: ErrorCode): error is RonError {
  return error instanceof RonError && (code === undefined || error.code === code);
}

/** States an invariant. Stays on in production: a broken invariant must stop the work, not corrupt it. */
export function assert(condition: unknown, message: string): asserts condition {
  if (!condition) throw new RonError('internal', `assertion failed: ${message}`);
}
