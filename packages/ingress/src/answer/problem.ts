/**
 * Every refusal as RFC 9457 `application/problem+json`.
 *
 * Contract: any thrown value becomes a valid answer. Only the message of a `RonError` reaches the client; any other
 * error (and every `internal`) is a bare 500 whose message stays in the logs. Never throws.
 * Bound: one body of at most a few hundred bytes plus `details`; `Retry-After` at most an hour.
 */
import { STATUS_CODES } from '@ron/kernel/http';
import { ERRORS, isRonError, sched } from '@ron/kernel';
import type { ErrorCode, RonError } from '@ron/kernel';
import { isCorrId, newCorrId } from '../guards/corr-id.ts';

export interface Problem {
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly body: string;
}

/** `Retry-After` of errors that name no time. */
const RETRY_AFTER_DEFAULT_MS = 1000;
const RETRY_AFTER_S_MAX = 3600;
const INTERNAL_DETAIL = 'the request failed inside the service; quote corr_id when you report it';

/** The reason codes of a service; see reasons.ts. */
export interface ReasonTable {
  /** Undefined: this refusal has no reason code. */
  of(error: unknown): string | undefined;
}

/**
 * The answer for an error: status, headers (names in lower case, `content-length` included) and body. With `reasons` the
 * member `reason` is a code of that table or absent; without, a detail of that name is an ordinary detail.
 */
export function problemFor(error: unknown, corr_id: string, reasons?: ReasonTable): Problem {
  const reason = reasons?.of(error);
  const known = isRonError(error) && ERRORS[error.code].status !== 0 ? error : undefined;
  const code: ErrorCode = known?.code ?? 'internal';
  const row = ERRORS[code];
  const safe_corr_id = isCorrId(corr_id) ? corr_id : newCorrId();
  const body = problemBody(code, safe_corr_id, code === 'internal' ? undefined : known, reasons && { reason });
  const headers: Record<string, string> = {
    'content-type': 'application/problem+json',
    'content-length': String(Buffer.byteLength(body)),
    'cache-control': 'no-store',
    'x-corr-id': safe_corr_id,
  };
  if (row.status === 429 || row.status === 503) headers['retry-after'] = String(retryAfter_s(known?.retry_after_ms));
  if (reason !== undefined) headers['x-reason'] = reason;
  if (row.status === 401) headers['www-authenticate'] = 'Bearer realm="ron"';
  const allow = known?.details?.['allow'];
  if (row.status === 405 && Array.isArray(allow)) headers['allow'] = allow.filter(isToken).join(', ');
  const size = known?.details?.['size'];
  if (row.status === 416 && Number.isSafeInteger(size)) headers['content-range'] = `bytes */${String(size)}`;
  return { status: row.status, headers, body };
}

function problemBody(
  code: ErrorCode,
  corr_id: string,
  error: RonError | undefined,
  reason_member: { readonly reason: string | undefined } | undefined,
): string {
  const { status, retryable } = ERRORS[code];
  const members = {
    type: `urn:ron:problem:${code}`,
    title: STATUS_CODES[status] ?? 'Error',
    status,
    detail: error?.message ?? INTERNAL_DETAIL,
    code,
    corr_id,
    retryable,
    // Undefined is not printed, but hides a detail of that name.
    ...reason_member,
  };
  if (error?.details === undefined) return JSON.stringify(members);
  try {
    // Members of the problem override details of the same name.
    return JSON.stringify({ ...error.details, ...members });
  } catch {
    return JSON.stringify(members); // Drop details that JSON cannot represent rather than the answer.
  }
}

/**
 * Whole seconds, at least the requested time, plus jitter of half of it (at least two seconds), so that clients that
 * were refused together do not retry together.
 */
export function retryAfter_s(retry_after_ms: number | undefined): number {
  const asked_ms = retry_after_ms !== undefined && retry_after_ms >= 0 ? retry_after_ms : RETRY_AFTER_DEFAULT_MS;
  const base_s = Math.max(1, Math.ceil(Math.min(asked_ms / 1000, RETRY_AFTER_S_MAX)));
  const spread_s = Math.max(2, Math.ceil(base_s / 2));
  return Math.min(RETRY_AFTER_S_MAX, base_s + Math.floor(sched.random() * (spread_s + 1)));
}

function isToken(value: unknown): value is string {
  return typeof value === 'string' && /^[A-Z]{1,32}$/.test(value);
}
