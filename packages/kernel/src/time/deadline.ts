/**
 * One total budget for an operation and for every call below it.
 *
 * Contract: `run` settles no later than the budget, even if the work ignores its signal; a late failure of such work is
 * swallowed and never becomes an unhandled rejection. Every decision uses one reading of the clock, so time that passes
 * within a call cannot leave a waiter behind. A child never outlives its parent, neither in time nor when the parent is
 * cancelled or disposed. Expiry is `RonError('timeout', {op})` and calls `onExpire(op)` exactly once, whether the timer
 * or a caller notices it. The error and the count name the deadline whose budget ran out: a child cut short by its
 * parent carries the parent's error and is not counted itself. When timers are so late that both budgets have run out
 * before either fires, the error names the one that is noticed first, and each is counted once.
 * Bound: one controller, one timer and one listener upstream, created by the first use of `signal`, `run` or `within`. A
 * deadline that is only read costs one object. Unless `signal` was read, timer and listener are freed when the last call
 * of `run` or `within` ends: the signal that work gets is for the time of that call, and no timeout is counted after it.
 * Cancellation: an abort of `init.signal` or of the parent aborts this signal with the same reason; `cancel` does it by
 * hand. Disposing frees timer and listeners, and first cancels the work that still runs under the deadline.
 *
 *   using deadline = Deadline.after('request', 5000, { signal: client.signal });
 *   const bytes = await deadline.child('read', 1000).run((signal) => read(path, signal));
 *   if (deadline.remaining_ms < 100) return partial(bytes);
 */
import { assert, RonError } from '../errors.ts';
import { sched, touch, type Parked, type Timer } from '../sched.ts';
import { onAbort } from '../sync/on-abort.ts';

export interface DeadlineInit {
  /** The deadline this one may not outlive. Default none. */
  parent?: Deadline;
  /** Aborts this deadline when it aborts, with the same reason. Default none. */
  signal?: AbortSignal;
  /** Called once with `op` when the budget runs out. Default: the parent's. Must not throw. */
  onExpire?: (op: string) => void;
}

type State = 'live' | 'expired' | 'canceled' | 'ended';
type Follower = (state: State, reason: unknown) => void;

const NO_INIT: DeadlineInit = {};

export class Deadline implements Disposable {
  readonly op: string;
  readonly budget_ms: number;
  readonly #expires_ms: number;
  readonly #parent: Deadline | undefined;
  readonly #outer: AbortSignal | undefined;
  readonly #onExpire: ((op: string) => void) | undefined;
  /** Whether the parent runs out first, so that its error is the one to give. */
  readonly #clamped: boolean;
  #state: State = 'live';
  #reason: unknown = undefined;
  #controller: AbortController | undefined = undefined;
  /** Whether `signal` was read: it may be followed at any time then. */
  #isSignalRead = false;
  #timer: Timer | undefined = undefined;
  /** Notified when this deadline ends: children with a signal of their own, and pending calls of `run`. */
  #followers: Set<Follower> | undefined = undefined;
  /** How this deadline follows its parent and its outer signal; set while it does. */
  #link: Follower | undefined = undefined;
  #registration: Disposable | undefined = undefined;

  private constructor(op: string, budget_ms: number, now_ms: number, init: DeadlineInit) {
    const parent = init.parent;
    const expires_ms = now_ms + budget_ms;
    this.op = op;
    this.budget_ms = budget_ms;
    this.#clamped = parent !== undefined && parent.#expires_ms <= expires_ms;
    this.#expires_ms = this.#clamped ? parent!.#expires_ms : expires_ms;
    this.#parent = parent;
    this.#outer = init.signal;
    this.#onExpire = init.onExpire ?? (parent === undefined ? undefined : parent.#onExpire);
  }

  /** A deadline `budget_ms` from now. A budget of zero or less is over at once. */
  static after(op: string, budget_ms: number, init: DeadlineInit = NO_INIT): Deadline {
    assert(Number.isFinite(budget_ms), `deadline ${op}: the budget must be a finite number of ms`);
    return new Deadline(op, budget_ms > 0 ? budget_ms : 0, sched.now_ms(), init);
  }

  /** A deadline without a budget of its own: it ends with its parent or its signal, or when it is cancelled. */
  static unlimited(op: string, init: DeadlineInit = NO_INIT): Deadline {
    return new Deadline(op, Infinity, sched.now_ms(), init);
  }

  /** The rest of the budget; 0 when it is over for any reason. */
  get remaining_ms(): number {
    const now_ms = sched.now_ms();
    return this.#update(now_ms) ? this.#expires_ms - now_ms : 0;
  }

  /** Whether the budget ran out (this one's or the parent's). Cancelled or disposed is not expired. */
  get expired(): boolean {
    this.#update(sched.now_ms());
    return this.#state === 'expired';
  }

  /** Aborts when the deadline is over. The first call makes the controller and the timer. */
  get signal(): AbortSignal {
    touch(this);
    this.#isSignalRead = true;
    return this.#armedSignal ?? this.#openSignal(sched.now_ms());
  }

  /** A part of this budget, for one step of the operation. */
  child(op: string, budget_ms: number): Deadline {
    return Deadline.after(op, budget_ms, { parent: this });
  }

  /** Runs `work` under this deadline. Rejects with the deadline's reason when it is over first; work may still run then. */
  run<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    // One reading of the clock decides: with a second one, work could begin after the deadline has ended.
    const now_ms = sched.now_ms();
    if (!this.#update(now_ms)) return Promise.reject(this.#why());
    // [storage I-4] [kms I-4] [index I-4] [edge I-4] [interop I-4] The outcome comes within the budget, even if the work ignores the signal.
    const signal = this.#armedSignal ?? this.#openSignal(now_ms);
    return this.#outcomeOf(() => work(signal));
  }

  /** As `run`, for work that takes no signal. */
  within<T>(work: Promise<T>): Promise<T> {
    const now_ms = sched.now_ms();
    if (!this.#update(now_ms)) {
      work.catch(() => undefined);
      return Promise.reject(this.#why());
    }
    if (this.#timer === undefined) this.#arm(now_ms);
    return this.#outcomeOf(() => work);
  }

  #outcomeOf<T>(work: () => Promise<T>): Promise<T> {
    const parked = sched.park<T>(this.op);
    const follower = failing(parked);
    this.#adopt(follower);
    const started = (async () => work())();
    started.then(
      (value) => {
        this.#drop(follower);
        parked.wake(value);
      },
      (error: unknown) => {
        this.#drop(follower);
        parked.fail(error);
      },
    );
    return parked.promise;
  }

  /**
   * Calls `listener` with the reason when this is over, at once if it is already. Returns the function that removes the
   * listener. Sets no timer: for an owner of many deadlines that watches the clock for all of them.
   */
  onOver(listener: (reason: unknown) => void): () => void {
    const follower: Follower = (_state, reason) => listener(reason);
    this.#adopt(follower);
    return () => this.#drop(follower);
  }

  /** Ends it now: aborts the signal and rejects the calls that run under it. Nothing happens when it is already over. */
  cancel(reason?: unknown): void {
    touch(this);
    if (this.#state !== 'live') return;
    this.#settle('canceled', reason ?? new RonError('canceled', `${this.op} was cancelled`, { op: this.op }));
  }

  /** Frees timer and listeners; the signal stays silent unless something still runs under this deadline. */
  [Symbol.dispose](): void {
    touch(this);
    if (this.#state !== 'live') return;
    if (this.#followers !== undefined && this.#followers.size > 0) return this.cancel();
    this.#state = 'ended';
    this.#release();
  }

  /** Brings the state up to date: performs the work of timer and listeners if they were not set. True while live. */
  #update(now_ms: number): boolean {
    if (!this.#updateFromParent()) return false;
    const parent = this.#parent;
    if (!this.#clamped && now_ms >= this.#expires_ms) this.#expire();
    else if (parent !== undefined && !parent.#update(now_ms)) this.#follow(parent.#state, parent.#why());
    return this.#state === 'live';
  }

  /** Follows an end upstream that came before this call, even if the clock has passed the budget too. True while live. */
  #updateFromParent(): boolean {
    touch(this);
    if (this.#state !== 'live') return false;
    const parent = this.#parent;
    if (this.#outer !== undefined && this.#outer.aborted) this.#settle('canceled', this.#outer.reason);
    else if (parent !== undefined && !parent.#updateFromParent()) this.#follow(parent.#state, parent.#why());
    return this.#state === 'live';
  }

  #expire(): void {
    touch(this);
    if (this.#state !== 'live') return;
    if (this.#clamped) {
      const parent = this.#parent!;
      parent.#expire();
      return this.#follow(parent.#state, parent.#why());
    }
    const message = `${this.op} did not end within ${Math.round(this.budget_ms)} ms`;
    this.#settle('expired', new RonError('timeout', message, { op: this.op }));
    this.#onExpire?.(this.op);
  }

  /** Takes over how the parent ended. */
  #follow(state: State, reason: unknown): void {
    if (this.#state === 'live') this.#settle(state === 'expired' ? 'expired' : 'canceled', reason);
  }

  #settle(state: State, reason: unknown): void {
    const followers = this.#followers;
    this.#state = state;
    this.#reason = reason;
    this.#followers = undefined;
    this.#release();
    this.#controller?.abort(reason);
    if (followers !== undefined) for (const follower of followers) follower(state, reason);
  }

  /** Why it is over. Only a deadline that ended in silence has no reason yet. */
  #why(): unknown {
    this.#reason ??= new RonError('canceled', `${this.op} has ended`, { op: this.op });
    return this.#reason;
  }

  /** The signal, if it exists and its timer is set or needed no more. */
  get #armedSignal(): AbortSignal | undefined {
    return this.#timer !== undefined || this.#state !== 'live' ? this.#controller?.signal : undefined;
  }

  #openSignal(now_ms: number): AbortSignal {
    const controller = (this.#controller ??= new AbortController());
    if (!this.#update(now_ms)) controller.abort(this.#why());
    else if (this.#timer === undefined) this.#arm(now_ms);
    return controller.signal;
  }

  #arm(now_ms: number): void {
    if (this.#expires_ms !== Infinity)
      this.#timer = sched.timer(this.#expires_ms - now_ms, () => this.#expire(), this.op);
    this.#linkUp();
  }

  /** Listens upstream, without a timer: a parent need not watch the clock for a child that does. */
  #linkUp(): void {
    if (this.#link !== undefined || (this.#outer === undefined && this.#parent === undefined)) return;
    this.#link = (state, reason) => this.#follow(state, reason);
    if (this.#outer !== undefined) {
      this.#registration = onAbort(this.#outer, (reason) => this.#follow('canceled', reason));
    }
    // An outer signal that aborted before ends this deadline in the call above.
    if (this.#parent !== undefined && this.#link !== undefined) this.#parent.#adopt(this.#link);
  }

  /** A follower that comes after the end is notified at once; otherwise it would wait indefinitely. */
  #adopt(follower: Follower): void {
    touch(this);
    if (this.#state !== 'live') return follower(this.#state, this.#why());
    (this.#followers ??= new Set()).add(follower);
    this.#linkUp();
  }

  #drop(follower: Follower): void {
    touch(this);
    if (this.#followers?.delete(follower) !== true) return;
    if (this.#followers.size === 0 && !this.#isSignalRead) this.#release();
  }

  #release(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#registration?.[Symbol.dispose]();
    this.#registration = undefined;
    if (this.#link !== undefined && this.#parent !== undefined) this.#parent.#drop(this.#link);
    this.#link = undefined;
  }
}

/** A function of its own: within the caller it would also keep the work, as long as the set of followers keeps it. */
function failing<T>(parked: Parked<T>): Follower {
  return (_state, reason) => parked.fail(reason);
}
