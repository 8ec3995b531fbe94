/**
 * Retries idempotent work.
 *
 * Contract: only work marked idempotent is accepted, by type. It is tried at most `tries_max` times, one try at a time,
 * all within one deadline. It is not tried again when the error is not transient, when the breaker is open, when the
 * retry budget of its operation is spent, or when the wait would not fit into the rest of the deadline: then it
 * fails at once with the error of the last try. A `retry_after_ms` on the error is waited out on top of the backoff.
 * Bound: one try or one timer at a time. Overflow: the budget; retries never multiply an overload by more than 1.1,
 * beyond a small floor. Cancellation: the deadline's signal goes to every try and ends every wait.
 */
import type { Breaker } from '../overload/breaker.ts';
import type { Deadline } from '../time/deadline.ts';
import { isRonError } from '../errors.ts';
import type { RetryBudget } from './retry-budget.ts';
import { isTransient, type RetryPolicy } from './retry-policy.ts';
import { sleep } from '../sched.ts';

const IDEMPOTENT: unique symbol = Symbol('idempotent');

/** Work that may safely be done twice. Only `idempotent` makes it. */
export interface Idempotent<T> {
  readonly [IDEMPOTENT]: true;
  /** A short fixed word: it becomes a metric label. */
  readonly op: string;
  readonly work: (signal: AbortSignal, attempt: number) => Promise<T>;
}

/** States that `work` may be done twice with the same effect as once. `attempt` counts from 0. */
export function idempotent<T>(op: string, work: (signal: AbortSignal, attempt: number) => Promise<T>): Idempotent<T> {
  return { [IDEMPOTENT]: true, op, work };
}

export interface RetryInit {
  policy: RetryPolicy;
  /** For all tries and waits together. */
  deadline: Deadline;
  /** Consulted before each try; gets the outcome of each. Default none. */
  breaker?: Breaker;
  /** Shared by all callers of a service. Default: no limit but `tries_max`. */
  budget?: RetryBudget;
  /** Called once for each retry with its outcome. The first try does not count as a retry. Must not throw. */
  onRetry?: (op: string, result: 'ok' | 'failed') => void;
}

export async function retry<T>(work: Idempotent<T>, init: RetryInit): Promise<T> {
  init.budget?.onCall(work.op);
  for (let attempt = 0; ; attempt++) {
    const tried = await tryOnce(work, attempt, init);
    if (attempt > 0) init.onRetry?.(work.op, tried.ok ? 'ok' : 'failed');
    if (tried.ok) return tried.value;
    const wait_ms = waitBeforeNext(work.op, attempt, tried.error, init);
    if (wait_ms === undefined) throw tried.error;
    await sleep(wait_ms, init.deadline.signal, `retry ${work.op}`);
  }
}

type Tried<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly error: unknown };

async function tryOnce<T>(work: Idempotent<T>, attempt: number, init: RetryInit): Promise<Tried<T>> {
  const { deadline, breaker } = init;
  const run = (): Promise<T> => deadline.run((signal) => work.work(signal, attempt));
  try {
    // An expired deadline says nothing about the target, so the breaker is not consulted.
    const guarded = breaker !== undefined && deadline.remaining_ms > 0;
    return { ok: true, value: await (guarded ? breaker.run(run) : run()) };
  } catch (error) {
    return { ok: false, error };
  }
}

/** How long to wait after a failed try, or undefined when it was the last one. */
function waitBeforeNext(op: string, attempt: number, error: unknown, init: RetryInit): number | undefined {
  const { policy, deadline, breaker, budget } = init;
  if (attempt + 1 >= policy.tries_max) return undefined;
  if (breaker?.state === 'open' || isRonError(error, 'breaker_open')) return undefined;
  if (!(policy.isTransient?.(error) ?? isTransient(error))) return undefined;
  const wait_ms = policy.backoff_ms(attempt) + (isRonError(error) ? (error.retry_after_ms ?? 0) : 0);
  if (wait_ms >= deadline.remaining_ms) return undefined;
  if (budget !== undefined && !budget.trySpend(op)) return undefined;
  return wait_ms;
}
