/**
 * The header facts of a routed request: those that the pipeline needs are copied from the header scan, the others are
 * read from the request on demand.
 *
 * Contract: `noteHeaders` is called once, while the view still belongs to this request. A base class instead of a
 * member, which saves one object per request.
 * Bound: a few references to strings that the request holds anyway.
 *
 *   exchange.noteHeaders(view);
 *   if (exchange.has_body && exchange.body_length === undefined) ...; // chunked
 */
import type { IncomingMessage } from 'node:http';
import { valuesOf } from '../guards/header-scan.ts';
import type { HeaderView } from '../guards/header-scan.ts';

export class RequestHead {
  readonly req: IncomingMessage;
  /** The authority: of an absolute target, or the `Host` header. */
  host: string | undefined = undefined;
  authorization: string | undefined = undefined;
  content_length: string | undefined = undefined;
  content_type: string | undefined = undefined;
  content_encoding: string | undefined = undefined;
  is_chunked = false;
  /** Whether the client shortens the budget. */
  has_budget = false;

  constructor(req: IncomingMessage) {
    this.req = req;
  }

  noteHeaders(view: HeaderView): void {
    this.host = view.host;
    this.authorization = view.authorization;
    this.content_length = view.content_length;
    this.content_type = view.content_type;
    this.content_encoding = view.content_encoding;
    this.is_chunked = view.transfer_encoding !== undefined;
    this.has_budget = view.has_budget;
  }

  get has_body(): boolean {
    return this.is_chunked || (this.content_length !== undefined && this.content_length !== '0');
  }

  /** Undefined if the headers do not state it. */
  get body_length(): number | undefined {
    if (this.content_length !== undefined) return Number(this.content_length);
    return this.is_chunked ? undefined : 0;
  }

  get headers(): IncomingMessage['headers'] {
    return this.req.headers;
  }

  headerValues(name: string): readonly string[] {
    return valuesOf(this.req.rawHeaders, name);
  }

  get method(): string {
    return this.req.method!;
  }
}
