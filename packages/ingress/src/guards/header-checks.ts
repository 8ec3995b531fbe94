/**
 * Refuses requests that the parser accepts although two implementations could read them differently.
 *
 * Contract: after these checks a request is HTTP/1.0 or 1.1 with exactly one Host (1.1), at most one Authorization, and a
 * body framed by one Content-Length line or by one Transfer-Encoding line that is exactly `chunked`. All lines of a name
 * are checked together: the parser reads `gzip` and a second line `chunked` as chunked. The parser itself already refuses
 * duplicate lengths, length together with encoding, folded lines and bare line feeds.
 * Bound: reads one header view; holds nothing.
 */
import type { IncomingMessage } from 'node:http';
import { RonError } from '@ron/kernel';
import type { HeaderView } from './header-scan.ts';

export function headerRefusal(req: IncomingMessage, view: HeaderView, header_count_max: number): RonError | undefined {
  // The parser also accepts 0.9 and 2.0 on a request line; neither is supported.
  if (req.httpVersionMajor !== 1) return new RonError('bad_request', `HTTP/${req.httpVersion} is not supported`);
  if (req.rawHeaders.length > header_count_max * 2) {
    return new RonError('headers_too_large', `more than ${header_count_max} header lines`);
  }
  if (view.host_count !== 1 && (view.host_count > 1 || req.httpVersionMinor === 1)) {
    return new RonError('bad_request', 'exactly one Host header is required');
  }
  if (view.authorization_count > 1) return new RonError('bad_request', 'more than one Authorization header');
  // [storage I-10] [kms I-10] [index I-10] [edge I-10] [interop I-10] Each request has exactly one framing.
  if (view.content_length_count > 1) return new RonError('bad_request', 'more than one Content-Length header');
  return view.transfer_encoding_count === 0 ? undefined : framingRefusal(req, view);
}

function framingRefusal(req: IncomingMessage, view: HeaderView): RonError | undefined {
  if (view.content_length_count > 0)
    return new RonError('bad_request', 'Content-Length together with Transfer-Encoding');
  if (view.transfer_encoding_count > 1) return new RonError('bad_request', 'more than one Transfer-Encoding header');
  if (view.transfer_encoding!.toLowerCase() !== 'chunked')
    return new RonError('bad_request', 'the only supported Transfer-Encoding is chunked');
  // An HTTP/1.0 proxy in between would not know where such a body ends.
  if (req.httpVersionMinor === 0) return new RonError('bad_request', 'Transfer-Encoding on an HTTP/1.0 request');
  return undefined;
}

/** Whether a body follows the headers. */
export function hasBody(view: HeaderView): boolean {
  return view.transfer_encoding !== undefined || (view.content_length !== undefined && view.content_length !== '0');
}
