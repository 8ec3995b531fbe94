/**
 * Hedged calls: starts a further attempt when the first has not answered in time, and takes the first success.
 *
 * Contract: an attempt starts `delay_ms` after the one before, while none has succeeded and at least one is under way;
 * never more than `attempts_max` for a call. The first success answers the call and aborts the other attempts. A call
 * fails when every attempt that was started has failed, with the first error: a failure is not hedged but left to
 * `retry`. Only work marked idempotent is accepted, by type.
 * Bound: `budget` limits attempts beyond the first over all calls, and none starts while `inflight_max` attempts are under
 * way. Losers that ignore their abort count until they end, and no rejection of theirs is left unhandled.
 * Overflow: without budget a call goes on with the attempts that it has.
 * Cancellation: an abort of the caller's signal aborts every attempt and rejects the call at once. `close` does so for all
 * calls and waits until the last attempt has ended.
 *
 *     const budget = new RetryBudget({ ratio: 0.05, floor: 10 });
 *     const hedge = new Hedge({ delay_ms: () => window.quantile_ms(0.95), budget, inflight_max: 1024 });
 *     const read = idempotent('read', (signal, attempt) => peers[attempt % peers.length].get(id, signal));
 *     const bytes = await hedge.run(read, deadline.signal);
 */
import { assert, RonError } from '../errors.ts';
import { NEVER } from '../sync/never.ts';
import type { RetryBudget } from '../retry/retry-budget.ts';
import type { Idempotent } from '../retry/retry.ts';
import { sched, touch, type Parked, type Timer } from '../sched.ts';
import { onAbort } from '../sync/on-abort.ts';
import { WaitList } from '../sync/wait-list.ts';

export interface HedgeInit {
  /**
   * The delay before the next attempt, or its source, such as a p95. Undefined from the source: no further attempt. An
   * error of the source fails the call.
   */
  delay_ms: number | (() => number | undefined);
  /** Of one call, the first included. Default 2. */
  attempts_max?: number;
  /** Shared by all calls of an operation. */
  budget: RetryBudget;
  /** Attempts of all calls under way, beyond which no further attempt of a call starts. */
  inflight_max: number;
}

export class Hedge implements AsyncDisposable {
  /** Attempts beyond the first since the start. */
  hedged_total = 0;
  /** Calls that an attempt beyond the first answered. */
  won_total = 0;
  /** Attempts that the budget or `inflight_max` did not allow. */
  refused_total = 0;
  readonly #init: Required<HedgeInit>;
  readonly #calls = new Set<Call<unknown>>();
  readonly #closers: WaitList<void, undefined>;
  #inflight = 0;
  #isClosed = false;

  constructor(init: HedgeInit) {
    this.#init = { attempts_max: 2, ...init };
    const { attempts_max } = this.#init;
    assert(Number.isSafeInteger(attempts_max) && attempts_max >= 1, 'hedge: attempts_max is a positive whole number');
    this.#closers = new WaitList({ owner: this, label: 'hedge.close' });
  }

  /** Attempts under way. */
  get inflight(): number {
    touch(this);
    return this.#inflight;
  }

  async run<T>(work: Idempotent<T>, signal: AbortSignal): Promise<T> {
    touch(this);
    signal.throwIfAborted();
    if (this.#isClosed) throw closedError();
    this.#init.budget.onCall(work.op);
    const call = new Call<T>(this, work, signal);
    this.#calls.add(call as Call<unknown>);
    call.attempt();
    return await call.parked.promise;
  }

  /** Rejects all calls with `closed` and resolves when the last attempt has ended. The signal ends only this wait. */
  async close(signal: AbortSignal = NEVER): Promise<void> {
    touch(this);
    this.#isClosed = true;
    for (const call of this.#calls) call.fail(closedError());
    signal.throwIfAborted();
    if (this.#inflight > 0) await this.#closers.park(signal, undefined);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** For `Call`: when to try again after the given number of attempts; undefined when never. */
  delayAfter(attempts: number): number | undefined {
    const { attempts_max, delay_ms } = this.#init;
    if (attempts >= attempts_max) return undefined;
    const delay = typeof delay_ms === 'number' ? delay_ms : delay_ms();
    return delay !== undefined && delay >= 0 ? delay : undefined;
  }

  /** For `Call`: whether a further attempt may start now. */
  trySpend(op: string): boolean {
    touch(this);
    if (this.#inflight < this.#init.inflight_max && this.#init.budget.trySpend(op)) {
      this.hedged_total += 1;
      return true;
    }
    this.refused_total += 1;
    return false;
  }

  /** For `Call`. */
  onAttempt(): void {
    this.#inflight += 1;
  }

  /** For `Call`. */
  onAttemptEnded(): void {
    touch(this);
    this.#inflight -= 1;
    if (this.#inflight === 0) while (this.#closers.size > 0) this.#closers.wakeFirst();
  }

  /** For `Call`. */
  onAnswered(call: Call<unknown>): void {
    this.#calls.delete(call);
  }
}

/** One call: its attempts, the timer for the next, and the caller that waits. */
class Call<T> {
  readonly parked: Parked<T>;
  readonly #hedge: Hedge;
  readonly #work: Idempotent<T>;
  readonly #registration: Disposable;
  readonly #running = new Set<AbortController>();
  #attempts = 0;
  #failure: { readonly error: unknown } | undefined;
  #timer: Timer | undefined;
  #isAnswered = false;

  constructor(hedge: Hedge, work: Idempotent<T>, signal: AbortSignal) {
    this.parked = sched.park<T>(`hedge ${work.op}`);
    this.#hedge = hedge;
    this.#work = work;
    this.#registration = onAbort(signal, (reason) => {
      touch(hedge);
      this.fail(reason);
    });
  }

  /** Starts an attempt, and the timer for the next one. */
  attempt(): void {
    const index = this.#attempts++;
    const cancel = new AbortController();
    this.#running.add(cancel);
    this.#hedge.onAttempt();
    const outcome = (async () => this.#work.work(cancel.signal, index))();
    outcome.then(
      (value) => this.#onSuccess(cancel, index, value),
      (error: unknown) => this.#onFailure(cancel, error),
    );
    const delay_ms = this.#nextDelay_ms();
    if (delay_ms === undefined || this.#isAnswered) return;
    this.#timer = sched.timer(delay_ms, () => this.#onDelay(), `hedge ${this.#work.op}`);
  }

  /** An error of the source fails the call, as an exception would leave the attempt that was started without an owner. */
  #nextDelay_ms(): number | undefined {
    try {
      return this.#hedge.delayAfter(this.#attempts);
    } catch (error) {
      this.fail(error);
      return undefined;
    }
  }

  fail(error: unknown): void {
    if (this.#isAnswered) return;
    this.#end(error);
    this.parked.fail(error);
  }

  #onDelay(): void {
    touch(this.#hedge);
    this.#timer = undefined;
    if (!this.#isAnswered && this.#hedge.trySpend(this.#work.op)) this.attempt();
  }

  #onSuccess(cancel: AbortController, index: number, value: T): void {
    this.#running.delete(cancel);
    this.#hedge.onAttemptEnded();
    if (this.#isAnswered) return;
    if (index > 0) this.#hedge.won_total += 1;
    this.#end(new RonError('canceled', 'another attempt answered first', { op: this.#work.op }));
    this.parked.wake(value);
  }

  #onFailure(cancel: AbortController, error: unknown): void {
    this.#running.delete(cancel);
    this.#hedge.onAttemptEnded();
    this.#failure ??= { error };
    if (this.#running.size === 0) this.fail(this.#failure.error);
  }

  /** Aborts the attempts under way with `reason`; no other starts. */
  #end(reason: unknown): void {
    this.#isAnswered = true;
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#registration[Symbol.dispose]();
    this.#hedge.onAnswered(this as Call<unknown>);
    for (const cancel of this.#running) cancel.abort(reason);
  }
}

function closedError(): RonError {
  return new RonError('closed', 'hedged calls are closed');
}
