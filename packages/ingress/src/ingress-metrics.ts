/**
 * The metrics of a listener. Series are resolved once per route: a request only increments numbers.
 *
 * Contract: every answer is counted once by route and class, every refusal once under the metric that the error table
 * names for its code.
 * Bound: routes and codes are closed sets.
 */
import { ERRORS, isRonError } from '@ron/kernel';
import type { Counter, CounterSeries, HistogramSeries, Metrics } from '@ron/telemetry';
import type { ErrorCode } from '@ron/kernel';
import type { Reasons } from './answer/reasons.ts';

const CLASSES = ['2xx', '3xx', '4xx', '5xx', 'aborted'] as const;
const SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
/** Timeouts of the listener itself. */
export const IO_OPS = ['header', 'read', 'write', 'handler'] as const;

/** The series of one route. */
export class RouteMetrics {
  readonly #classes: readonly CounterSeries[];
  readonly #seconds: HistogramSeries;

  constructor(classes: readonly CounterSeries[], seconds: HistogramSeries) {
    this.#classes = classes;
    this.#seconds = seconds;
  }

  /** `status` 0: the client disconnected before the answer was sent. */
  count(status: number, seconds: number): void {
    const index = status === 0 ? 4 : status < 300 ? 0 : status < 400 ? 1 : status < 500 ? 2 : 3;
    this.#classes[index]!.inc();
    this.#seconds.observe(seconds);
  }
}

export class IngressMetrics {
  readonly rejected: Counter<'reason'>;
  readonly io_timeouts: Counter<'op'>;
  readonly #routes = new Map<string, RouteMetrics>();
  /** For requests without a route: 404, refusals before routing. */
  readonly none: RouteMetrics;

  readonly #reasons: Reasons | undefined;

  constructor(metrics: Metrics, shared: SharedCounters, routes: readonly string[], reasons?: Reasons) {
    this.#reasons = reasons;
    this.rejected = shared.rejected;
    this.io_timeouts = shared.io_timeouts;
    const names = [...routes, 'none'];
    const requests = metrics.counter(
      'http_requests_total',
      'Answers by route and class. aborted: the client disconnected first.',
      {
        route: names,
        class: CLASSES,
      },
    );
    const seconds = metrics.histogram(
      'http_request_seconds',
      'Time from the end of the headers to the end of the answer.',
      SECONDS,
      {
        route: names,
      },
    );
    for (const name of names) {
      const classes = CLASSES.map((class_name) => requests.at(name, class_name));
      this.#routes.set(name, new RouteMetrics(classes, seconds.at(name)));
    }
    this.none = this.#routes.get('none')!;
  }

  route(name: string): RouteMetrics {
    return this.#routes.get(name) ?? this.none;
  }

  /** Counts a refusal under the metric of its row. A queue or a deadline has already counted its own refusals. */
  countRefusal(error: unknown): ErrorCode {
    const code = isRonError(error) ? error.code : 'internal';
    const label = this.#reasons?.count(error);
    if (label !== undefined) this.rejected.at(label).inc();
    else if (ERRORS[code].metric === 'rejected_total{reason}') this.rejected.at(code).inc();
    return code;
  }
}

/** Counters that the listener shares with the rest of the service. */
export interface SharedCounters {
  readonly rejected: Counter<'reason'>;
  readonly io_timeouts: Counter<'op'>;
}
