/**
 * The HTTP surface of a service as one table: method, path, schema, scope, lane, body mode and handler of every route.
 *
 * Contract: a handler runs only after the checks of its row have passed, with parameters and body of the declared types.
 * Its answer is a value; it never touches the socket.
 */
import type { IncomingMessage } from 'node:http';
import type { Deadline } from '@ron/kernel';
import type { AccessFacts, AccessGrant, FactName } from '@ron/proto';
import type { Static, JsonSchema } from './schema.ts';
import type { ByteSource } from '../bytes/bytes.ts';
import type { EventsAnswer, ServerSentEvent } from '../answer/event-stream.ts';
import type { ForwardAnswer } from '../proxy/reverse-proxy.ts';
import type { StreamedAnswer } from '../answer/stream-answer.ts';

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | 'OPTIONS';

/** Objects should set `additionalProperties: false`: an unknown field is refused, never dropped. */
export interface RouteSchema {
  readonly params?: JsonSchema;
  /**
   * All query values are text and never coerced: declare strings with patterns. A repeated key is refused,
   * with or without a schema, except on `forward` routes: there the upstream checks the query.
   */
  readonly query?: JsonSchema;
  readonly body?: JsonSchema;
  /** By status; used to serialize and for the OpenAPI document. */
  readonly response?: Readonly<Record<number, JsonSchema>>;
}

type Of<T, Fallback> = T extends JsonSchema ? Static<T> : Fallback;

/** The input of a handler. */
export interface RouteContext<S extends RouteSchema = RouteSchema> {
  readonly params: Of<S['params'], Readonly<Record<string, string>>>;
  readonly query: Of<S['query'], Readonly<Record<string, string>>>;
  /** The parsed body of a `buffered` route with a body schema; undefined if it has one of the `body_types`. */
  readonly body: Of<S['body'], undefined>;
  /** The decoded bytes of a `buffered` body, for signatures over them. */
  readonly body_bytes: Uint8Array | undefined;
  /** The body of a `stream` route: checked, decoded, watched for stalls. Read it once; the handler owns the chunks. */
  readonly stream: AsyncIterable<Uint8Array>;
  /** Node joins or drops repeated headers here, by name; `headerValues` has each line. */
  readonly headers: IncomingMessage['headers'];
  /** The values of all lines with this name, in order. The name may be in any case. */
  headerValues(name: string): readonly string[];
  readonly method: string;
  /** The authority of the request, checked against the hosts that the listener serves. */
  readonly host: string | undefined;
  readonly corr_id: string;
  readonly ip: string;
  /** The accepted capability; undefined on open routes. */
  readonly grant: AccessGrant | undefined;
  /** States facts that only the body contains (`facts_later`), item by item. Throws when the capability does not allow it. */
  actsOn(facts: AccessFacts): void;
  /**
   * The budget of the request, until its answer begins; from then on a deadline without a time limit. Its signal also aborts
   * when the client leaves. The source of a streamed answer must read this property again: the deadline of the handler ends with the budget.
   */
  readonly deadline: Deadline;
  /** Aborts when the client leaves or a drain ends the answer, even after it has begun: for the source of a streamed answer. */
  readonly gone: AbortSignal;
  /** Aborts when a drain begins: for waits that should then end early. */
  readonly draining: AbortSignal;
  /**
   * Charges the request to the rate of the listener, with `charges_late`: after its signature or capability is verified.
   * Throws 429 `rate_limited`.
   */
  chargeRate(): void;
  /**
   * Waits for `wait` without holding an in-flight permit: for long polls and coalesced waits. Rejects with 429 `busy` when
   * too many requests are parked, and with the reason of `deadline` when that ends first. Only for `inline` handlers. A
   * function is called only if the request can be parked: for a wait that causes work.
   */
  park<T>(wait: Promise<T> | (() => Promise<T>)): Promise<T>;
}

/** The result of a handler. */
export type RouteAnswer =
  | { readonly kind: 'json'; readonly status: number; readonly value: unknown; readonly headers?: AnswerHeaders }
  | { readonly kind: 'empty'; readonly status: number; readonly headers?: AnswerHeaders }
  | {
      readonly kind: 'text';
      readonly status: number;
      readonly media_type: string;
      readonly text: string;
      readonly headers?: AnswerHeaders;
    }
  | {
      readonly kind: 'data';
      readonly status: number;
      readonly media_type: string;
      readonly pieces: readonly Uint8Array[];
      readonly headers?: AnswerHeaders;
    }
  | { readonly kind: 'bytes'; readonly source: ByteSource; readonly headers?: AnswerHeaders }
  | StreamedAnswer
  | EventsAnswer
  | ForwardAnswer;

export type AnswerHeaders = Readonly<Record<string, string>>;

export const json = (status: number, value: unknown, headers?: AnswerHeaders): RouteAnswer =>
  headers === undefined ? { kind: 'json', status, value } : { kind: 'json', status, value, headers };

export const empty = (status: number, headers?: AnswerHeaders): RouteAnswer =>
  headers === undefined ? { kind: 'empty', status } : { kind: 'empty', status, headers };

export const text = (status: number, media_type: string, body: string, headers?: AnswerHeaders): RouteAnswer =>
  headers === undefined
    ? { kind: 'text', status, media_type, text: body }
    : { kind: 'text', status, media_type, text: body, headers };

/** Bytes in memory, of any method, without ranges and conditions. The pieces are sent in order and not copied. */
export const data = (
  status: number,
  media_type: string,
  pieces: readonly Uint8Array[],
  headers?: AnswerHeaders,
): RouteAnswer =>
  headers === undefined
    ? { kind: 'data', status, media_type, pieces }
    : { kind: 'data', status, media_type, pieces, headers };

/** Bytes with a known size and tag: the listener handles ranges and conditions. */
export const bytes = (source: ByteSource, headers?: AnswerHeaders): RouteAnswer =>
  headers === undefined ? { kind: 'bytes', source } : { kind: 'bytes', source, headers };

/** Items of unknown number, each flushed at once; see stream-answer.ts. A text item of ndjson ends with a line feed. */
export const stream = (
  status: number,
  media_type: string,
  items: AsyncIterable<string | Uint8Array>,
  headers?: AnswerHeaders,
): RouteAnswer =>
  headers === undefined
    ? { kind: 'stream', status, media_type, items }
    : { kind: 'stream', status, media_type, items, headers };

/** Server-sent events; see event-stream.ts. */
export const events = (items: AsyncIterable<ServerSentEvent>, headers?: AnswerHeaders): RouteAnswer =>
  headers === undefined ? { kind: 'events', items } : { kind: 'events', items, headers };

/**
 * `none`: a body is refused. `buffered`: read completely, up to a limit. `stream`: passed to the handler as it
 * arrives. `forward`: left for the upstream of a `ReverseProxy`; encoded bodies and capabilities that restrict the
 * body are refused.
 */
export type BodyMode = 'none' | 'buffered' | 'stream' | 'forward';

/** `inline`: runs at once on the event loop, for data in RAM. Any other value names a lane of a work queue. */
export type Lane = 'inline' | (string & {});

export interface RouteInit<S extends RouteSchema = RouteSchema> {
  readonly method: Method;
  /** In the syntax of the router: `/o/:addr`. GET includes HEAD. */
  readonly path: string;
  /** Whether a parameter may contain `%2F`. Default false. */
  readonly encoded_slash?: boolean;
  readonly summary: string;
  readonly schema?: S;
  /** The required capability scope; null = open to all. Mandatory, so that it cannot be forgotten. */
  readonly scope: string | null;
  /** The facts in path and query that caveats are compared with. Default: none. */
  readonly facts?: (request: {
    readonly params: Readonly<Record<string, string>>;
    readonly query: Readonly<Record<string, string>>;
  }) => AccessFacts;
  /** Facts that only the body contains. The handler must call `actsOn` before it changes anything, or it is refused. */
  readonly facts_later?: readonly FactName[];
  /** Caveats about these facts do not restrict the route: its answer is public data that belongs to no tenant or name. */
  readonly facts_ignored?: readonly FactName[];
  readonly lane: Lane;
  readonly body: BodyMode;
  /** The name of the declared deadline that is its budget, and its label in `io_timeouts_total{op}`. */
  readonly deadline?: string;
  /** Alternatively a total budget; for `stream` bodies and byte answers it ends with the first byte sent. Default: that of the listener. */
  readonly deadline_ms?: number;
  /**
   * Media types that a `buffered` route with a body schema accepts besides JSON. Such a body is not parsed: the handler
   * reads `body_bytes`. Default none.
   */
  readonly body_types?: readonly string[];
  /** Media types of successful answers besides JSON, for the OpenAPI document. Default none. */
  readonly answer_types?: readonly string[];
  /** Whether a body with a content coding is refused, because the handler needs the bytes as they were sent. Default: it is decoded. */
  readonly refuses_codings?: boolean;
  /** Largest body after decompression. Default: that of the listener, whatever `body_bytes_max` is. */
  readonly decoded_bytes_max?: number;
  /** Largest body, as it is sent. Default for `buffered`: that of the listener; for `stream`: none, the handler limits it. */
  readonly body_bytes_max?: number;
  /**
   * For `stream`: a body without a coding of at most this declared length is buffered before the handler runs, and
   * passed in `body_bytes`: no worker waits while it arrives. Default 0: all are streamed.
   */
  readonly gather_bytes_max?: number;
  /** `health` routes skip drain, rate, admission and queues. They must be `inline`, open and without parameters. */
  readonly access?: 'work' | 'health';
  /** Whether pages of other origins may read the answers, if the listener lists them; see cors.ts. Default false. */
  readonly cors?: boolean;
  /** Statuses of answers without a schema, for the OpenAPI document. Default: 200, or none beside `schema.response`. */
  readonly statuses?: readonly number[];
  readonly tags?: readonly string[];
  /** Sent with every refusal of this route, for protocols that require it. Other answers set their own. */
  readonly refusal_headers?: AnswerHeaders;
  readonly handler: (context: RouteContext<S>) => RouteAnswer | Promise<RouteAnswer>;
}

/** A row whose types have been checked against each other and erased. */
export type Route = RouteInit;

/** Declares one row. It exists so that the types of the handler are inferred from the schema. */
export function route<const S extends RouteSchema>(init: RouteInit<S>): Route {
  return init;
}

/** The name of a route in metrics and logs. */
export function routeName(row: Pick<Route, 'method' | 'path'>): string {
  return `${row.method} ${row.path}`;
}
