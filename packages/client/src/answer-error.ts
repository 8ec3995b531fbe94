/**
 * Turns an error response into an error: from the problem document of the service, or from its status without one.
 *
 * Contract: any error response becomes an `AnswerError` with a code of our table. A code that this version does not know is
 * replaced by the code of the status; `retryable` is that of the server.
 * Bound: `PROBLEM_BYTES_MAX` of the body are read; `Retry-After` is limited to `RETRY_AFTER_MS_MAX`.
 */
import type { Answer, ByteStream } from './answer.ts';
import { ERRORS, RonError, sched, type ErrorCode } from '@ron/kernel/core';

const PROBLEM_BYTES_MAX = 65_536;
const RETRY_AFTER_MS_MAX = 3_600_000;

const CODE_OF_STATUS: Readonly<Record<number, ErrorCode>> = {
  401: 'unauthorized',
  403: 'forbidden',
  404: 'not_found',
  405: 'method_not_allowed',
  408: 'request_timeout',
  409: 'conflict',
  412: 'precondition_failed',
  413: 'payload_too_large',
  415: 'unsupported_media',
  416: 'range_not_satisfiable',
  422: 'unprocessable',
  429: 'busy',
  502: 'unreachable',
  503: 'not_ready',
  504: 'timeout',
  507: 'storage_full',
};

export interface AnswerErrorInit {
  op: string;
  http_status: number;
  corr_id?: string | undefined;
  retryable?: boolean | undefined;
  retry_after_ms?: number | undefined;
  details?: Readonly<Record<string, unknown>>;
}

export class AnswerError extends RonError {
  readonly http_status: number;
  /** Finds the request in the logs of the service. */
  readonly corr_id: string | undefined;
  readonly #retryable: boolean;

  constructor(code: ErrorCode, message: string, init: AnswerErrorInit) {
    const { op, retry_after_ms, details } = init;
    super(code, message, {
      op,
      ...(retry_after_ms !== undefined && { retry_after_ms }),
      ...(details !== undefined && { details }),
    });
    this.http_status = init.http_status;
    this.corr_id = init.corr_id;
    this.#retryable = init.retryable ?? ERRORS[code].retryable;
  }

  override get retryable(): boolean {
    return this.#retryable;
  }
}

/** Reads the body of the response, up to the bound. */
export async function answerError(response: Answer, op: string): Promise<AnswerError> {
  const { status, headers } = response;
  const problem = await readProblem(response);
  const { code, detail, corr_id, retryable, type: _type, title: _title, status: _status, ...details } = problem;
  const known = codeOf(code, status);
  // A response to HEAD has no body.
  return new AnswerError(known, textOf(detail) ?? `the server answered ${status}: ${ERRORS[known].when}`, {
    op,
    http_status: status,
    corr_id: textOf(corr_id) ?? headers.get('x-corr-id') ?? undefined,
    retryable: typeof retryable === 'boolean' ? retryable : undefined,
    retry_after_ms: retryAfter_ms(headers.get('retry-after')),
    details,
  });
}

function codeOf(code: unknown, status: number): ErrorCode {
  if (typeof code === 'string' && Object.hasOwn(ERRORS, code)) return code as ErrorCode;
  return CODE_OF_STATUS[status] ?? (status >= 500 ? 'internal' : 'bad_request');
}

const textOf = (value: unknown): string | undefined =>
  typeof value === 'string' && value !== '' ? value.slice(0, 1024) : undefined;

async function readProblem(response: Answer): Promise<Record<string, unknown>> {
  const isProblem = response.headers.get('content-type')?.startsWith('application/problem+json') ?? false;
  try {
    const bytes = await readAtMost(response.body, isProblem ? PROBLEM_BYTES_MAX : 0);
    const value: unknown = isProblem ? JSON.parse(new TextDecoder().decode(bytes)) : {};
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : {};
  } catch {
    return {}; // The status is enough.
  }
}

/** The first bytes of a body; the rest is cancelled. */
async function readAtMost(body: ByteStream | null, bytes_max: number): Promise<Uint8Array> {
  if (body === null) return new Uint8Array(0);
  const reader = body.getReader();
  const bytes = new Uint8Array(bytes_max);
  let filled = 0;
  while (filled < bytes_max) {
    const { done, value } = await reader.read();
    if (done) break;
    bytes.set(value.subarray(0, bytes_max - filled), filled);
    filled += Math.min(value.length, bytes_max - filled);
  }
  await reader.cancel();
  return bytes.subarray(0, filled);
}

/** Seconds or a date. */
function retryAfter_ms(header: string | null): number | undefined {
  if (header === null) return undefined;
  const wait_ms = /^\d{1,9}$/.test(header) ? Number(header) * 1000 : Date.parse(header) - sched.wall_ms();
  return Number.isNaN(wait_ms) ? undefined : Math.min(Math.max(wait_ms, 0), RETRY_AFTER_MS_MAX);
}
