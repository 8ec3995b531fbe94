/**
 * Finds the row of the route table for a request: by its path first, then by its method.
 *
 * Contract: a path without a row is 404; a path with other methods only is 405 with `Allow`, for any method;
 * HEAD is served by the row for GET; `OPTIONS *` is answered with the methods of the whole table. A literal path takes
 * precedence over one with a parameter, even if only the latter has the method. Every request ends in the pipeline or
 * in an answer.
 * Bound: the table; a parameter or wildcard has at most `PARAM_LENGTH_MAX` characters, a longer one is 414.
 *
 *   const router = new Router(rows, pipeline, answers);
 *   router.handle(exchange);
 */
import { RonError } from '@ron/kernel';
import findMyWay from 'find-my-way';
import type { AnswerSender } from '../answer/answer-sender.ts';
import type { Exchange } from '../request/exchange.ts';
import type { Pipeline } from '../request/pipeline.ts';
import type { PreparedRoute } from './prepared-route.ts';
import { SERVER_WIDE } from '../guards/request-target.ts';
import { empty } from './routes.ts';
import type { Route } from './routes.ts';

/** A key id in a path is percent-encoded and long. */
const PARAM_LENGTH_MAX = 1024;

/** The tree is keyed by path only, but requires a method. */
const TREE = 'GET';

const NO_SUCH_ROUTE = new RonError('not_found', 'no such route');
const PARAM_TOO_LONG = new RonError('uri_too_long', `a path parameter is longer than ${PARAM_LENGTH_MAX} characters`);

/** All rows of one path, by method. */
class PathRows {
  readonly rows = new Map<string, PreparedRoute>();
  #refusal: RonError | undefined;

  /** The answer to every other method. */
  get refusal(): RonError {
    return (this.#refusal ??= methodNotAllowed([...this.rows.keys()]));
  }
}

export class Router {
  readonly #pipeline: Pipeline;
  readonly #answers: AnswerSender;
  readonly #tree = findMyWay({
    maxParamLength: PARAM_LENGTH_MAX,
    caseSensitive: true,
    ignoreTrailingSlash: false,
    // Such a result has no store; a path without a row has no result.
    onMaxParamLength: () => undefined,
  });
  /** Paths without parameters, which need no search when the target has no query and no encoding. */
  readonly #exact = new Map<string, PathRows>();
  readonly #server_wide: PreparedRoute;

  constructor(rows: readonly Route[], pipeline: Pipeline, answers: AnswerSender) {
    this.#pipeline = pipeline;
    this.#answers = answers;
    const by_path = new Map<string, PathRows>();
    for (const row of rows) {
      const path_rows = by_path.get(row.path) ?? new PathRows();
      by_path.set(row.path, path_rows);
      if (path_rows.rows.has(row.method))
        throw new RonError('internal', `${row.method} ${row.path} is in the route table twice`);
      const prepared = pipeline.prepare(row);
      path_rows.rows.set(row.method, prepared);
      if (row.method === 'GET') path_rows.rows.set('HEAD', prepared);
    }
    for (const [path, path_rows] of by_path) {
      this.#tree.on(TREE, path, () => undefined, path_rows);
      if (!/[:*]/.test(path)) this.#exact.set(path, path_rows);
    }
    const methods = new Set([...by_path.values()].flatMap((path_rows) => [...path_rows.rows.keys()]));
    this.#server_wide = pipeline.prepare(serverWideRow([...methods, 'OPTIONS']));
  }

  handle(exchange: Exchange): void {
    const { method, url } = exchange.req;
    const exact = this.#exact.get(url!);
    if (exact !== undefined) return this.#begin(exchange, exact, method!);
    if (url === SERVER_WIDE) return this.#pipeline.begin(exchange, this.#server_wide);
    const found = this.#tree.find(TREE, url!);
    if (found === null) return this.#answers.fail(exchange, NO_SUCH_ROUTE);
    const path_rows = found.store as PathRows | null;
    // The tree limits parameters, but not wildcards.
    if (path_rows === null || (found.params['*']?.length ?? 0) > PARAM_LENGTH_MAX)
      return this.#answers.fail(exchange, PARAM_TOO_LONG);
    exchange.params = found.params as Readonly<Record<string, string>>;
    exchange.query = found.searchParams;
    this.#begin(exchange, path_rows, method!);
  }

  #begin(exchange: Exchange, path_rows: PathRows, method: string): void {
    const prepared = path_rows.rows.get(method);
    if (prepared === undefined) this.#answers.fail(exchange, path_rows.refusal);
    else this.#pipeline.begin(exchange, prepared);
  }
}

function methodNotAllowed(allow: readonly string[]): RonError {
  return new RonError('method_not_allowed', `Allowed methods: ${allow.join(', ')}`, { details: { allow } });
}

/** `OPTIONS *` applies to the whole server (RFC 9110, section 9.3.7). */
function serverWideRow(methods: readonly string[]): Route {
  const headers = { Allow: [...new Set(methods)].join(', ') };
  return {
    method: 'OPTIONS',
    path: SERVER_WIDE,
    summary: 'The methods of this service.',
    scope: null,
    lane: 'inline',
    body: 'none',
    handler: () => empty(204, headers),
  };
}
