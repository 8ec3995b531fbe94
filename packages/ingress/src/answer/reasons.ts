/**
 * The reason codes of a service: a closed set in addition to the problem codes, for services whose specification defines them.
 *
 * Contract: the reason of a refusal is the one that its error names (as `reason`, or as a detail of that name),
 * otherwise that of its cause or of its problem code. A name outside the set is never reported. Responder and metrics use the
 * same instance, so the `X-Reason` header, the `reason` member of the problem and the counter agree. All series are exported from
 * the start.
 * Bound: one series for each name.
 *
 *   reasons: {
 *     metric: 'edge_rejects_total',
 *     names: ['not_allowed', 'rate_limit'],
 *     by_code: { rate_limited: 'rate_limit' },
 *   }
 *   throw new RonError('reject_policy', 'the origin is not allowed', { reason: 'not_allowed' });
 */
import { assert, isRonError } from '@ron/kernel';
import type { Counter, Metrics } from '@ron/telemetry';
import type { ErrorCode } from '@ron/kernel';
import type { AccessRefusal } from '@ron/proto';
import type { ReasonTable } from '../answer/problem.ts';

export interface ReasonsInit<Name extends string = string> {
  /** A counter of its own, with the label `reason`. Default: `rejected_total` counts the reason in place of the code. */
  readonly metric?: string;
  readonly names: readonly Name[];
  /** The reason of errors without one, by problem code. Other codes have no reason. */
  readonly by_code?: Readonly<Partial<Record<ErrorCode, Name>>>;
  /** The reason of a refused capability that expired or was revoked. Default: that of its code. */
  readonly by_cause?: Readonly<Record<NonNullable<AccessRefusal['cause']>, Name>>;
}

export class Reasons implements ReasonTable {
  readonly #names: ReadonlySet<string>;
  readonly #by_code: Readonly<Partial<Record<ErrorCode, string>>>;
  readonly #by_cause: Readonly<Record<string, string>>;
  readonly #counter: Counter<'reason'> | undefined;

  constructor(init: ReasonsInit, metrics: Metrics) {
    const { metric, names, by_code = {}, by_cause = {} } = init;
    this.#names = new Set(names);
    this.#by_code = by_code;
    this.#by_cause = by_cause;
    for (const name of [...names, ...Object.values<string>(by_code), ...Object.values<string>(by_cause)]) {
      assert(
        /^(?:[a-z][a-z0-9_]{0,63}|[A-Z][A-Z0-9_]{0,63})$/.test(name) && this.#names.has(name),
        `${name} is a reason of the set`,
      );
    }
    this.#counter =
      metric === undefined
        ? undefined
        : metrics.counter(metric, 'Requests refused, by reason code.', { reason: [...names] });
  }

  /** Undefined: this refusal has no reason code. */
  of(error: unknown): string | undefined {
    if (!isRonError(error)) return undefined;
    for (const named of [error.reason, error.details?.['reason']]) {
      if (typeof named === 'string' && this.#names.has(named)) return named;
    }
    if (error.reason !== undefined && Object.hasOwn(this.#by_cause, error.reason)) return this.#by_cause[error.reason];
    return this.#by_code[error.code];
  }

  /** Counts a refusal in the counter of the reasons. Returns the label for `rejected_total` instead if there is none. */
  count(error: unknown): string | undefined {
    const reason = this.of(error);
    if (this.#counter === undefined) return reason;
    if (reason !== undefined) this.#counter.at(reason).inc();
    return undefined;
  }
}
