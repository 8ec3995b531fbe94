/**
 * The outcome of a call, as it counts for the upstream.
 *
 * | outcome | errors |
 * | --- | --- |
 * | `error` | no connection, a broken one, a malformed answer, a status of 500 or above, `busy` (429), a defect |
 * | `ok` | any other answer: a status below 500, and 507, because a full disk or topic refuses writes only |
 * | `none` | the caller cancelled, or the call failed before it was sent; it says nothing about the upstream |
 *
 * `busy` counts because the upstream is overloaded, and its fast refusals would hide that from the latency. A 429 for a rate
 * does not: clients choose the rate caveat of their capabilities, and must not begin a brownout for others. A 408 does not,
 * because the upstream waited for a body that a client sends slowly. Deadlines are judged by `upstream-call.ts`.
 */
import { AnswerError } from '@ron/client';
import { isRonError, type ErrorCode } from '@ron/kernel';

export type Outcome = 'ok' | 'error' | 'none';

const OVERLOADED: ReadonlySet<ErrorCode> = new Set<ErrorCode>(['busy', 'inflight_limit', 'conns_max']);
const FAULTS: ReadonlySet<ErrorCode> = new Set<ErrorCode>(['unreachable', 'timeout', 'integrity', 'bad_gateway']);
const STORAGE_FULL = 507;

export function outcomeOf(error: unknown): Outcome {
  if (error instanceof AnswerError) return isFault(error) ? 'error' : 'ok';
  if (error instanceof Error && error.name === 'AbortError') return 'none';
  if (!isRonError(error)) return 'error';
  return FAULTS.has(error.code) ? 'error' : 'none';
}

function isFault({ http_status, code }: AnswerError): boolean {
  if (http_status === 429) return OVERLOADED.has(code);
  return http_status >= 500 && http_status !== STORAGE_FULL;
}
