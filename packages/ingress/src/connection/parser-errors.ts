/**
 * Maps errors of the HTTP parser to the error table.
 *
 * Contract: 408 for headers that took too long, 431 for headers over the limit, 413 for chunk extensions over the limit,
 * 400 for all other parser errors.
 */
import { RonError } from '@ron/kernel';

interface ParserError extends Error {
  readonly code?: string;
  readonly reason?: string;
}

export const HEADERS_LATE = new RonError('request_timeout', 'the headers were not complete in time', { op: 'header' });

/** Undefined for an error without an answer: the client reset the connection, or closed it between two requests. */
export function parserRefusal(error: ParserError): RonError | undefined {
  const code = error.code ?? '';
  switch (code) {
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return HEADERS_LATE;
    case 'HPE_HEADER_OVERFLOW':
      return new RonError('headers_too_large', 'the request line and headers are larger than the limit');
    case 'HPE_CHUNK_EXTENSIONS_OVERFLOW':
      return new RonError('payload_too_large', 'the chunk extensions are larger than the limit');
    case 'ECONNRESET':
    case 'EPIPE':
    case 'ETIMEDOUT':
      return undefined;
    default:
      return new RonError('bad_request', `the request is not HTTP/1.1: ${error.reason ?? 'parse error'}`, {
        cause: error,
      });
  }
}
