/** The inputs of a listener: routes, queues, limits and parts of the service. */
import type { Metrics } from '@ron/telemetry';
import type { IngressLog } from './answer/answer-sender.ts';
import type { ReasonsInit } from './answer/reasons.ts';
import type { FastSource } from './fast/fast-path.ts';
import type { AccessCheck } from '@ron/proto';
import type { SharedCounters } from './ingress-metrics.ts';
import type { IngressConfig } from './limits.ts';
import type { HealthReport } from './table/health.ts';
import type { DeclaredDeadlines, LaneQueue } from './table/prepared-route.ts';
import type { Readiness } from './table/readiness.ts';
import type { Route } from './table/routes.ts';

export interface IngressInit {
  readonly service: string;
  /** Shown at `/version` and in the OpenAPI document. */
  readonly version: string;
  /** Further members of `/version`, read for each request. Default none. */
  readonly about?: () => Readonly<Record<string, string>>;
  readonly metrics: Metrics;
  /** Counters of the service. Default: created here. */
  readonly counters?: SharedCounters;
  readonly config?: Partial<IngressConfig>;
  /** Handlers charge requests to `server.max_rps` (`chargeRate`), not the guards: unverified requests must not spend it. Default false. */
  readonly charges_late?: boolean;
  /** Reason codes that problems carry in addition to their code. Default none. */
  readonly reasons?: ReasonsInit;
  readonly routes: readonly Route[];
  /** Work queues by lane. Every lane that a route names must be here. */
  readonly lanes?: Readonly<Record<string, LaneQueue>>;
  /** The deadlines that routes name, such as a `ServiceRuntime`. */
  readonly deadlines?: DeclaredDeadlines;
  /** The origins whose pages may read the rows with `cors`; `*` means all. Read for each request. Default none. */
  readonly cors?: () => readonly string[];
  /** Bytes in RAM that are answered before routing. */
  readonly fast?: FastSource;
  /** Checks capabilities. May be omitted only if every route is open. */
  readonly access?: AccessCheck;
  /** The gates of `/readyz`. The listener adds `draining`. */
  readonly readiness?: Readiness;
  /** Called by `/healthz`. */
  readonly health?: () => HealthReport;
  readonly log?: IngressLog;
}
