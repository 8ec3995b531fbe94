/** Turns errors of `node:http` and of sockets into rows of the one error table. */
import { isRonError, RonError } from '@ron/kernel/core';

/** The server sent something that is not a valid answer. `reason` is a short fixed word. */
export function badAnswer(reason: string, message: string, cause?: unknown): RonError {
  return new RonError('bad_gateway', message, { op: 'egress_answer', details: { reason }, cause });
}

/** `unreachable` for a lost connection, `bad_gateway` for bytes that the parser refused. */
export function judgeWire(error: unknown): RonError {
  if (isRonError(error)) return error;
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  if (code === 'HPE_HEADER_OVERFLOW') return badAnswer('headers_too_large', 'the header section is too large', error);
  if (code.startsWith('HPE_')) return badAnswer('malformed', `the answer is not valid HTTP (${code})`, error);
  return new RonError('unreachable', 'the server closed the connection before the end of its answer', {
    op: 'egress_answer',
    cause: error,
  });
}
