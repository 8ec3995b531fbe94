/**
 * Coalesces concurrent calls with the same key into one run.
 *
 * Contract: callers that arrive while a run of their key is under way share its outcome, value or error; the next caller
 * starts another run. A run is under way until its promise has settled and the reactions here have run: a caller that
 * comes in those microtasks still joins it. As with every coalesced call, the work may have begun before the caller came.
 * A caller leaves by its own signal and the others stay. When the last caller has left, the run is
 * aborted and the next caller starts anew. With `outlives_ms` the run goes on without callers, for cache fills: it is
 * aborted only at that deadline, measured from its start, or by `close`. `detach` makes later callers start a new run;
 * the detached one answers the callers that it has and can see that its result is outdated.
 * Bound: `runs_max` runs under way; one that ignores its abort counts until it ends. Overflow: `busy`, at once; callers
 * that join a run are not counted here. Cancellation: as above. No rejection is left unhandled.
 *
 *     const reads = new SingleFlight<Uint8Array>('reads', { runs_max: 1024 });
 *     const bytes = await reads.run(id, signal, async (flight) => {
 *       const payload = await volume.get(id, flight.signal);
 *       if (!flight.isDetached) cache.set(id, payload, payload.length);
 *       return payload;
 *     });
 */
import { Deadline } from '../time/deadline.ts';
import { assert, RonError } from '../errors.ts';
import { NEVER } from './never.ts';
import { sched, touch, type Parked } from '../sched.ts';
import { onAbort } from './on-abort.ts';
import { WaitList } from './wait-list.ts';

const RETRY_AFTER_MS = 1000;

export interface SingleFlightInit {
  runs_max: number;
  /** How long a run may go on, with or without callers. Default: a run ends with its last caller. */
  outlives_ms?: number;
}

/** The state of a run that its work can read. */
export interface Flight {
  readonly signal: AbortSignal;
  /** The deadline of a run that may outlive its callers, for steps that need one. */
  readonly deadline: Deadline | undefined;
  /** Its key was detached or its last caller left: the result must not be cached. */
  readonly isDetached: boolean;
}

interface Caller<T> {
  readonly parked: Parked<T>;
  readonly registration: Disposable;
}

class Run<T> implements Flight {
  readonly key: string;
  readonly callers = new Set<Caller<T>>();
  readonly deadline: Deadline | undefined;
  readonly #cancel: AbortController | undefined;
  isDetached = false;

  constructor(name: string, key: string, outlives_ms: number | undefined) {
    this.key = key;
    if (outlives_ms === undefined) this.#cancel = new AbortController();
    else this.deadline = Deadline.after(name, outlives_ms);
  }

  get signal(): AbortSignal {
    return this.deadline === undefined ? this.#cancel!.signal : this.deadline.signal;
  }

  abort(reason: unknown): void {
    this.#cancel?.abort(reason);
    this.deadline?.cancel(reason);
  }

  /** Gives the outcome to every caller. */
  settle(give: (parked: Parked<T>) => void): void {
    for (const { parked, registration } of this.callers) {
      registration[Symbol.dispose]();
      give(parked);
    }
    this.callers.clear();
  }
}

export class SingleFlight<T> implements AsyncDisposable {
  readonly name: string;
  readonly #init: SingleFlightInit;
  /** The run that a new caller of the key joins. */
  readonly #joinable = new Map<string, Run<T>>();
  /** Runs under way, including those that no caller can join any more. */
  readonly #runs = new Set<Run<T>>();
  readonly #closers: WaitList<void, undefined>;
  #isClosed = false;

  constructor(name: string, init: SingleFlightInit) {
    assert(Number.isSafeInteger(init.runs_max) && init.runs_max > 0, `${name}: runs_max is a positive whole number`);
    this.name = name;
    this.#init = init;
    this.#closers = new WaitList({ owner: this, label: `${name}.close` });
  }

  /** Runs under way. */
  get size(): number {
    touch(this);
    return this.#runs.size;
  }

  async run(key: string, signal: AbortSignal, start: (flight: Flight) => Promise<T>): Promise<T> {
    touch(this);
    signal.throwIfAborted();
    if (this.#isClosed) throw this.#closedError();
    const known = this.#joinable.get(key);
    const run = known ?? this.#add(key);
    const parked = sched.park<T>(this.name);
    const registration = onAbort(signal, (reason) => this.#leave(run, caller, reason));
    const caller: Caller<T> = { parked, registration };
    run.callers.add(caller);
    if (known === undefined) this.#start(run, start);
    return await parked.promise;
  }

  /** Later callers of the key start a new run. */
  detach(key: string): void {
    touch(this);
    const run = this.#joinable.get(key);
    if (run !== undefined) this.#detach(run);
  }

  /** Aborts every run, rejects all callers with `closed`, and resolves when the last run has ended. Idempotent. */
  async close(signal: AbortSignal = NEVER): Promise<void> {
    touch(this);
    this.#isClosed = true;
    for (const run of this.#runs) {
      this.#detach(run);
      run.settle((parked) => parked.fail(this.#closedError()));
      run.abort(this.#closedError());
    }
    signal.throwIfAborted();
    if (this.#runs.size > 0) await this.#closers.park(signal, undefined);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #add(key: string): Run<T> {
    const { runs_max, outlives_ms } = this.#init;
    if (this.#runs.size >= runs_max) {
      const message = `${this.name}: ${runs_max} runs are under way`;
      throw new RonError('busy', message, { retry_after_ms: RETRY_AFTER_MS });
    }
    const run = new Run<T>(this.name, key, outlives_ms);
    this.#runs.add(run);
    this.#joinable.set(key, run);
    return run;
  }

  #start(run: Run<T>, start: (flight: Flight) => Promise<T>): void {
    let hasBegun = false;
    const work = async (): Promise<T> => {
      hasBegun = true;
      try {
        return await start(run);
      } finally {
        this.#onEnd(run);
      }
    };
    // A deadline answers the callers on time even if the run ignores its signal.
    const outcome = run.deadline === undefined ? work() : run.deadline.run(work);
    // A deadline that is over already begins no work, so no work ends.
    if (!hasBegun) this.#onEnd(run);
    outcome.then(
      (value) => this.#land(run, (parked) => parked.wake(value)),
      (error: unknown) => this.#land(run, (parked) => parked.fail(error)),
    );
  }

  #land(run: Run<T>, give: (parked: Parked<T>) => void): void {
    touch(this);
    this.#detach(run);
    run.deadline?.[Symbol.dispose]();
    run.settle(give);
  }

  #leave(run: Run<T>, caller: Caller<T>, reason: unknown): void {
    touch(this);
    run.callers.delete(caller);
    caller.parked.fail(reason);
    if (run.callers.size > 0 || run.deadline !== undefined) return;
    // The next caller must not join a run that is being aborted.
    this.#detach(run);
    run.abort(reason);
  }

  #detach(run: Run<T>): void {
    run.isDetached = true;
    if (this.#joinable.get(run.key) === run) this.#joinable.delete(run.key);
  }

  /** In the step in which the run ends, so that no caller joins it while its outcome is on the way. */
  #onEnd(run: Run<T>): void {
    touch(this);
    this.#detach(run);
    this.#runs.delete(run);
    if (this.#runs.size > 0) return;
    while (this.#closers.size > 0) this.#closers.wakeFirst();
  }

  #closedError(): RonError {
    return new RonError('closed', `${this.name} is closed`);
  }
}
