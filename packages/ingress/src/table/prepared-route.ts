/**
 * A row of the route table with everything resolved that is the same for all requests.
 *
 * Contract: a row that cannot work (a lane without a queue, a health route that would wait) is refused at start.
 */
import { RonError } from '@ron/kernel';
import type { Deadline } from '@ron/kernel';
import type { BodyLimits } from '../body/body.ts';
import type { IngressMetrics, RouteMetrics } from '../ingress-metrics.ts';
import type { IngressConfig } from '../limits.ts';
import { routeName } from './routes.ts';
import type { Route } from './routes.ts';
import type { RouteParts, SchemaCompiler } from './schema-compiler.ts';

/** The part of a work queue that lanes use. */
export interface LaneQueue {
  /** `key`: the client address, for lanes that are fair to addresses. */
  submit<R>(lane: string, deadline: Deadline, work: (deadline: Deadline) => Promise<R>, key?: string): Promise<R>;
}

/** Declares the deadlines that routes name. The runtime of a service implements it. */
export interface DeclaredDeadlines {
  deadline(name: string): Deadline;
}

export interface PreparedRoute {
  readonly row: Route;
  readonly name: string;
  readonly metrics: RouteMetrics;
  /** Undefined: inline. */
  readonly queue: LaneQueue | undefined;
  /** Its label in `io_timeouts_total{op}`. */
  readonly op: string;
  /** Called for each request: a reload may change it. */
  readonly budget_ms: () => number;
  readonly limits: BodyLimits;
  readonly reads_json: boolean;
  /** Whether everything that the capability restricts is known before the handler starts. */
  readonly settles_first: boolean;
  readonly parts: RouteParts;
}

/** Streamed bodies are limited by progress, not by a total; this only bounds the resources of a lost job. */
const STREAM_DEADLINE_MS = 24 * 3600 * 1000;

export function prepareRoute(
  row: Route,
  config: IngressConfig,
  metrics: IngressMetrics,
  lanes: Readonly<Record<string, LaneQueue>>,
  deadlines: DeclaredDeadlines | undefined,
  schemas: SchemaCompiler,
): PreparedRoute {
  const name = routeName(row);
  const inline = row.lane === 'inline';
  const queue = inline ? undefined : lanes[row.lane];
  if (!inline && queue === undefined) throw new RonError('internal', `${name}: no queue serves the lane ${row.lane}`);
  if (row.access === 'health' && (!inline || row.scope !== null || row.body !== 'none' || row.path.includes(':'))) {
    throw new RonError('internal', `${name}: a health route is inline, open, without body and without parameters`);
  }
  const streams = isStreamed(row);
  return {
    row,
    name,
    metrics: metrics.route(name),
    queue,
    op: row.deadline ?? (inline ? 'handler' : row.lane),
    budget_ms: budgetOf(row, deadlines, config),
    limits: {
      bytes_max: row.body_bytes_max ?? (streams ? Infinity : config.body_bytes_max),
      decompress_max_ratio: config.decompress_max_ratio,
      decompress_abs_bytes: Math.min(config.decompress_abs_bytes, row.decoded_bytes_max ?? Infinity),
    },
    reads_json: row.body === 'buffered' && row.schema?.body !== undefined,
    settles_first: !streams && row.facts_later === undefined,
    parts: schemas.parts(row.schema),
  };
}

function isStreamed(row: Route): boolean {
  return row.body === 'stream' || row.body === 'forward';
}

function budgetOf(row: Route, deadlines: DeclaredDeadlines | undefined, config: IngressConfig): () => number {
  const { deadline } = row;
  if (deadline !== undefined) {
    if (deadlines === undefined)
      throw new RonError('internal', `${routeName(row)}: no runtime declares the deadline ${deadline}`);
    // Throws here, at start, if it is not declared.
    deadlines.deadline(deadline);
    return () => deadlines.deadline(deadline).budget_ms;
  }
  const budget_ms = row.deadline_ms ?? (isStreamed(row) ? STREAM_DEADLINE_MS : config.request_deadline_ms);
  return () => budget_ms;
}

export function isJson(content_type: string | undefined): boolean {
  return content_type === 'application/json' || mediaTypeOf(content_type) === 'application/json';
}

/** Whether the row accepts a body of this type without parsing it. */
export function isRawType({ body_types }: Route, content_type: string | undefined): boolean {
  return body_types !== undefined && body_types.includes(mediaTypeOf(content_type) ?? '');
}

/** Without parameters, in lower case. */
function mediaTypeOf(content_type: string | undefined): string | undefined {
  const end = content_type?.indexOf(';') ?? -1;
  return (end < 0 ? content_type : content_type?.slice(0, end))?.trim().toLowerCase();
}
