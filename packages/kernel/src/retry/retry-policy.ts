/**
 * How often and after which waits each kind of caller tries again, and after which errors.
 *
 * Contract: the numbers are those that each caller's service was designed with; they differ on purpose. All chance comes
 * from `sched`. Bound: every policy has a last try and a longest wait. Overflow, cancellation: nothing is kept here.
 */
import { isRonError } from '../errors.ts';
import { sched } from '../sched.ts';

export interface RetryPolicy {
  /** Tries in all, the first one included. */
  readonly tries_max: number;
  /** How long to wait before retry number `attempt`, counted from 0. Includes the jitter. */
  readonly backoff_ms: (attempt: number) => number;
  /** Which errors may pass by themselves. Default `isTransient`. */
  readonly isTransient?: (error: unknown) => boolean;
}

const NETWORK_ERRORS = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EPIPE',
  'EAI_AGAIN',
  'UND_ERR_SOCKET',
]);
const NETWORK_TIMEOUTS = new Set([
  'ETIMEDOUT',
  'UND_ERR_CONNECT_TIMEOUT',
  'UND_ERR_HEADERS_TIMEOUT',
  'UND_ERR_BODY_TIMEOUT',
]);

/** Whether an error is transient: retryable in the error table, or a failure of the network. */
export function isTransient(error: unknown): boolean {
  if (isRonError(error)) return error.retryable;
  const code = networkCode(error);
  return NETWORK_ERRORS.has(code) || NETWORK_TIMEOUTS.has(code);
}

/** Only a timeout, 503 or 504: the errors that a live fill tries again after. */
export function isTimeoutOrUnavailable(error: unknown): boolean {
  if (isRonError(error) && !error.retryable) return false;
  const status = error instanceof Error && 'status' in error ? error.status : undefined;
  return status === 503 || status === 504 || NETWORK_TIMEOUTS.has(networkCode(error));
}

/** The system's code, also where `fetch` hides it in the cause. */
function networkCode(error: unknown): string {
  for (let at = error, depth = 0; at instanceof Error && depth < 4; at = at.cause, depth++) {
    if ('code' in at && typeof at.code === 'string') return at.code;
  }
  return '';
}

export interface JitteredInit {
  tries_max: number;
  /** The first wait lies between these two. Default 50 and 100. */
  from_ms?: number;
  to_ms?: number;
  /** Each further wait is this many times longer. Default 4. */
  factor?: number;
  /** No wait is longer. */
  cap_ms: number;
}

/** Waits U[from, to] x factor^n, at most the cap. */
export function jittered(init: JitteredInit): RetryPolicy {
  const { tries_max, cap_ms, from_ms = 50, to_ms = 100, factor = 4 } = init;
  const backoff_ms = (attempt: number): number =>
    Math.min(cap_ms, (from_ms + sched.random() * (to_ms - from_ms)) * factor ** attempt);
  return { tries_max, backoff_ms };
}

export interface LiveFillInit {
  /** Default 50. */
  base_ms?: number;
  /** Longest wait before the jitter. Default 800. */
  max_ms?: number;
  /** Default 3. */
  tries_max?: number;
  /** Whether up to `base_ms` is added by chance. Default true. */
  jitter?: boolean;
}

/** Waits min(max, base x 2^n) + U[0, base], and only after a timeout, 503 or 504. */
export function liveFill(init: LiveFillInit = {}): RetryPolicy {
  const { base_ms = 50, max_ms = 800, tries_max = 3, jitter = true } = init;
  const backoff_ms = (attempt: number): number =>
    Math.min(max_ms, base_ms * 2 ** attempt) + (jitter ? sched.random() * base_ms : 0);
  return { tries_max, backoff_ms, isTransient: isTimeoutOrUnavailable };
}

/** The callers differ, and on purpose. */
export const POLICIES = {
  /** Calls between services: 50-100 ms, 200-400 ms, 800-1600 ms, never above 2 s; 3 tries. */
  rpc: jittered({ tries_max: 3, cap_ms: 2000 }),
  /** Idempotent key operations: 50-100 ms, growing to at most 1 s; 2 tries. */
  kms: jittered({ tries_max: 2, cap_ms: 1000 }),
  /** DHT lookups, after transient and no-route errors: 50-100 ms each time; 3 tries. */
  index: jittered({ tries_max: 3, factor: 1, cap_ms: 100 }),
  /** Live fill from the origin: 50, 100, .. 800 ms plus up to 50; 3 tries, so 2 waits. */
  liveFill: liveFill(),
  /** No retry: the caller tries again itself, or the call must not be repeated. */
  once: { tries_max: 1, backoff_ms: () => 0 },
} as const satisfies Record<string, RetryPolicy>;
