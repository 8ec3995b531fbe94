/**
 * The HTTP surface of a service as one table: method, path, schema, scope, lane, body mode and handler of every route.
 *
 * Promise: a handler runs only after the checks of its row have passed, with parameters and body of the declared types.
 * Its answer is a value; it never touches the socket.
 */
import type { IncomingMessage } from 'node:http';
import type { Deadline } from '@ron/kernel';
import type { Static, TSchema } from 'typebox';
import type { AccessFacts, FactName, Grant } from '../guards/access.ts';
import type { ByteSource } from '../bytes/bytes.ts';
import type { EventsAnswer, ServerSentEvent } from '../answer/event-stream.ts';
import type { ForwardAnswer } from '../proxy/reverse-proxy.ts';
import type { StreamedAnswer } from '../answer/stream-answer.ts';

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | 'OPTIONS';

/** Objects here should say `additionalProperties: false`: an unknown field is refused, never dropped. */
export interface RouteSchema {
  readonly params?: TSchema;
  /**
   * Everything in a query arrives as text and is never coerced: declare strings with patterns. A repeated key is refused,
   * with or without a schema, except on `forward` routes: there the upstream judges the query.
   */
  readonly query?: TSchema;
  readonly body?: TSchema;
  /** By status; used to serialize and for the OpenAPI document. */
  readonly response?: Readonly<Record<number, TSchema>>;
}

type Of<T, Fallback> = T extends TSchema ? Static<T> : Fallback;

/** The input of a handler. */
export interface RouteContext<S extends RouteSchema = RouteSchema> {
  readonly params: Of<S['params'], Readonly<Record<string, string>>>;
  readonly query: Of<S['query'], Readonly<Record<string, string>>>;
  /** The parsed body of a `buffered` route with a body schema. */
  readonly body: Of<S['body'], undefined>;
  /** The bytes of a `buffered` body as they were read, decoded: for signatures over them. */
  readonly body_bytes: Uint8Array | undefined;
  /** The body of a `stream` route: checked, decoded, watched for stalls. Read it once; its pieces are the handler's own. */
  readonly stream: AsyncIterable<Uint8Array>;
  /** Repeated headers are joined or dropped here, as Node does it by name; `headerValues` has each line. */
  readonly headers: IncomingMessage['headers'];
  /** The values of all lines with this name, in their order. The name may be in any case. */
  headerValues(name: string): readonly string[];
  readonly method: string;
  readonly corr_id: string;
  readonly ip: string;
  /** The accepted capability; undefined on open routes. */
  readonly grant: Grant | undefined;
  /** States facts that only the body contains (`facts_later`), item by item. Throws when the capability does not allow it. */
  actsOn(facts: AccessFacts): void;
  /**
   * The budget of the request, until its answer begins; from then on a deadline without a time limit. Its signal also aborts
   * when the client leaves. The source of a streamed answer must read it anew: the one of the handler ends with the budget.
   */
  readonly deadline: Deadline;
  /** Aborts when the client leaves, or a drain ends the answer, even after it began: for the source of a streamed answer. */
  readonly gone: AbortSignal;
  /** Aborts when a drain begins: for waits that should end early then. */
  readonly draining: AbortSignal;
  /**
   * Waits for `wait` without holding an in-flight place: for long polls and coalesced waits. Rejects with 429 `busy` when
   * too many requests are parked, and with the reason of `deadline` when that ends first. Only for `inline` handlers.
   */
  park<T>(wait: Promise<T>): Promise<T>;
}

/** The result of a handler. */
export type Answer =
  | { readonly kind: 'json'; readonly status: number; readonly value: unknown; readonly headers?: AnswerHeaders }
  | { readonly kind: 'empty'; readonly status: number; readonly headers?: AnswerHeaders }
  | {
      readonly kind: 'text';
      readonly status: number;
      readonly media_type: string;
      readonly text: string;
      readonly headers?: AnswerHeaders;
    }
  | { readonly kind: 'bytes'; readonly source: ByteSource; readonly headers?: AnswerHeaders }
  | StreamedAnswer
  | EventsAnswer
  | ForwardAnswer;

export type AnswerHeaders = Readonly<Record<string, string>>;

export const json = (status: number, value: unknown, headers?: AnswerHeaders): Answer =>
  headers === undefined ? { kind: 'json', status, value } : { kind: 'json', status, value, headers };

export const empty = (status: number, headers?: AnswerHeaders): Answer =>
  headers === undefined ? { kind: 'empty', status } : { kind: 'empty', status, headers };

export const text = (status: number, media_type: string, body: string, headers?: AnswerHeaders): Answer =>
  headers === undefined
    ? { kind: 'text', status, media_type, text: body }
    : { kind: 'text', status, media_type, text: body, headers };

/** Bytes with a known size and tag: ranges and conditions are handled for you. */
export const bytes = (source: ByteSource, headers?: AnswerHeaders): Answer =>
  headers === undefined ? { kind: 'bytes', source } : { kind: 'bytes', source, headers };

/** Items of unknown number, each flushed at once; see stream-answer.ts. A text item of ndjson ends with a line feed. */
export const stream = (
  status: number,
  media_type: string,
  items: AsyncIterable<string | Uint8Array>,
  headers?: AnswerHeaders,
): Answer =>
  headers === undefined
    ? { kind: 'stream', status, media_type, items }
    : { kind: 'stream', status, media_type, items, headers };

/** Server-sent events; see event-stream.ts. */
export const events = (items: AsyncIterable<ServerSentEvent>, headers?: AnswerHeaders): Answer =>
  headers === undefined ? { kind: 'events', items } : { kind: 'events', items, headers };

/**
 * `none`: a body is refused. `buffered`: read whole, up to a limit. `stream`: handed to the handler as it comes. `forward`:
 * left for the upstream of a `ReverseProxy`; encoded bodies and capabilities that restrict the body are refused.
 */
export type BodyMode = 'none' | 'buffered' | 'stream' | 'forward';

/** `inline`: runs at once on the event loop, for data in RAM. Any other value names a lane of a work queue. */
export type Lane = 'inline' | (string & {});

export interface RouteInit<S extends RouteSchema = RouteSchema> {
  readonly method: Method;
  /** As the router reads it: `/o/:addr`. HEAD comes with GET. */
  readonly path: string;
  /** Whether a parameter may hold `%2F`. Default false. */
  readonly encoded_slash?: boolean;
  readonly summary: string;
  readonly schema?: S;
  /** The capability scope that is needed; null = open to all. Never left out, so that it is never forgotten. */
  readonly scope: string | null;
  /** The facts in path and query that caveats are compared with. Default: none. */
  readonly facts?: (request: {
    readonly params: Readonly<Record<string, string>>;
    readonly query: Readonly<Record<string, string>>;
  }) => AccessFacts;
  /** Facts that only the body contains. The handler must call `actsOn` before it changes anything, or it is refused. */
  readonly facts_later?: readonly FactName[];
  readonly lane: Lane;
  readonly body: BodyMode;
  /** The declared deadline that is its budget, by name; it is also the word for it in `io_timeouts_total{op}`. */
  readonly deadline?: string;
  /** Or a budget of its own: total; for `stream` bodies and byte answers it ends with the first byte out. Default: the listener's. */
  readonly deadline_ms?: number;
  /** Largest body. Default for `buffered`: the listener's; for `stream`: none, the handler counts. */
  readonly body_bytes_max?: number;
  /**
   * For `stream`: a plain body of at most this declared length is gathered before the handler runs, which then finds it in
   * `body_bytes`: no worker is held while it comes. Default 0: all are streamed.
   */
  readonly gather_bytes_max?: number;
  /** `health` routes skip drain, rate, admission and queues. They must be `inline`, open and without parameters. */
  readonly access?: 'work' | 'health';
  readonly tags?: readonly string[];
  /** Sent with every refusal of this route, for protocols that ask for it. Answers carry their own. */
  readonly refusal_headers?: AnswerHeaders;
  readonly handler: (context: RouteContext<S>) => Answer | Promise<Answer>;
}

/** A row whose types have been checked against each other and are no longer needed. */
export type Route = RouteInit;

/** Declares one row. Only there so that the handler's types follow from the schema. */
export function route<const S extends RouteSchema>(init: RouteInit<S>): Route {
  return init;
}

/** The name of a route in metrics and logs. */
export function routeName(row: Pick<Route, 'method' | 'path'>): string {
  return `${row.method} ${row.path}`;
}
