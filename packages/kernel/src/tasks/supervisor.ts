/**
 * Owns every task of a process: starts it, restarts it when it crashes, and joins it when the process stops.
 *
 * Contract: a task that crashes comes back after 100 ms..5 s (doubling, with jitter). Past `restarts_max` crashes within
 * `window_ms` it stays down; if it is critical, that is fatal: reported once and shown by `health()`. A critical task may not
 * return before the stop: that is a crash too. `stop()` always resolves, and no task starts after it began.
 * Bound: one record for each instance, one for each kind (at most KINDS_MAX); a one-shot task leaves only numbers.
 * One-shots that run at a time are limited where the work is admitted.
 * Cancellation: `ctx.stopping` requests that a task finish its current work; `ctx.signal` that it end now. A task that
 * ignores both is counted, reported as stuck and abandoned: a promise cannot be killed.
 *
 *   running --stop--> draining --live = 0--------------------------> stopped
 *                        `-- drain_ms passed --> aborting --grace--> stopped
 */
import { assert, isRonError, RonError } from '../errors.ts';
import { sched, touch, type Parked, type Timer } from '../sched.ts';
import { healthOf, newInstance, newRecord, totalsOf } from './task-record.ts';
import type { Criticality, Instance, KindHealth, KindRecord, TaskContext, TaskTotals } from './task-record.ts';

export type { Criticality, KindHealth, TaskContext, TaskTotals } from './task-record.ts';

export interface SupervisorEvent {
  readonly event: 'crashed' | 'failed' | 'fatal' | 'aborted' | 'stuck';
  readonly kind: string;
  /** The instance; -1 stands for all one-shots of the kind. */
  readonly index: number;
  readonly error?: unknown;
  /** When it starts again, for `crashed`. */
  readonly restart_ms?: number;
}

export interface SupervisorInit {
  /** Crashes of one instance within `window_ms` that are answered by a restart; one more and it stays down. Default 5. */
  restarts_max?: number;
  /** Default 60 000. */
  window_ms?: number;
  /** How long `stop()` waits for tasks that it had to abort. Default 250. */
  abort_grace_ms?: number;
  /** Called once, when the first critical task stays down. */
  onFatal?: (kind: string, error: unknown) => void;
  log?: (event: SupervisorEvent) => void;
}

export interface SpawnInit {
  criticality: Criticality;
  /** Instances to run. Default 1. */
  count?: number;
  /** Overrides the supervisor's limit for this kind. */
  restarts_max?: number;
}

export interface StopReport {
  /** Tasks that were still alive when the drain ended. */
  readonly aborted: number;
  /** Those of them that ignored the abort as well, and may still be running. */
  readonly stuck: number;
}

type Phase = 'running' | 'draining' | 'aborting' | 'stopped';
const KINDS_MAX = 256;
const BACKOFF_MS_MIN = 100;
const BACKOFF_MS_MAX = 5_000;
/** The default of the services' configuration. */
const DRAIN_MS_DEFAULT = 3_000;

export class Supervisor {
  readonly #restarts_max: number;
  readonly #window_ms: number;
  readonly #abort_grace_ms: number;
  readonly #onFatal: SupervisorInit['onFatal'];
  readonly #log: SupervisorInit['log'];
  readonly #kinds = new Map<string, KindRecord>();
  readonly #stopping = new AbortController();
  readonly #aborting = new AbortController();
  #phase: Phase = 'running';
  #live = 0;
  #fatal: { kind: string; error: unknown } | undefined;
  readonly #stopped = Promise.withResolvers<StopReport>();
  #drain_ends_ms = 0;
  /** What `stop()` waits on: woken when the last task ends or the timer fires. */
  #wait: { parked: Parked<void>; timer: Timer } | undefined;

  constructor(init: SupervisorInit = {}) {
    this.#restarts_max = init.restarts_max ?? 5;
    this.#window_ms = init.window_ms ?? 60_000;
    this.#abort_grace_ms = init.abort_grace_ms ?? 250;
    this.#onFatal = init.onFatal;
    this.#log = init.log;
    assert(this.#restarts_max >= 0 && this.#window_ms > 0, 'supervisor limits are positive');
  }

  /** The first critical task that stays down. The process should exit; `/healthz` should say so until then. */
  get fatal(): { kind: string; error: unknown } | undefined {
    return this.#fatal;
  }

  /** Tasks that run now, one-shots included. */
  get live(): number {
    return this.#live;
  }

  /** Runs `count` instances of a long-lived task. After `stop()` began it starts nothing. */
  spawn(kind: string, init: SpawnInit, task: (ctx: TaskContext) => Promise<void>): void {
    touch(this);
    const record = this.#record(kind);
    assert(record.spawned === undefined, `task kind ${kind} is spawned once`);
    record.spawned = { criticality: init.criticality, restarts_max: init.restarts_max ?? this.#restarts_max, task };
    for (let index = 0; index < (init.count ?? 1); index++) {
      const instance = newInstance(record, index);
      // [storage I-8] [kms I-8] [index I-8] [edge I-8] [interop I-8] An instance is recorded before it starts, and `stop` waits for all of them.
      record.instances.push(instance);
      this.#start(instance);
    }
  }

  /**
   * Runs one task that ends by itself, and tracks it until then: `stop()` waits for it. Work in hand may still start one
   * while draining; once stragglers are aborted it is refused. The result is the caller's; ignoring it is allowed.
   */
  run<T>(kind: string, work: (ctx: TaskContext) => Promise<T>): Promise<T> {
    touch(this);
    const record = this.#record(kind);
    if (this.#phase === 'aborting' || this.#phase === 'stopped') return Promise.reject(this.#canceled(kind));
    // [storage I-8] [kms I-8] [index I-8] [edge I-8] [interop I-8] One-shots count as live until they end.
    record.oneShots += 1;
    this.#began(record);
    const result = sched.task(kind, async () => work(record.oneShot));
    result.then(
      () => this.#oneShotEnded(record, undefined),
      (error: unknown) => this.#oneShotEnded(record, error),
    );
    return result;
  }

  /** Test hook: makes one instance crash. It counts, and restarts, like any other crash. */
  kill(kind: string, index = 0): void {
    touch(this);
    const instance = this.#kinds.get(kind)?.instances[index];
    assert(instance !== undefined, `there is a task ${kind}#${index}`);
    instance.controller?.abort(new RonError('canceled', `task ${kind}#${index} was killed`, { op: kind }));
  }

  /**
   * Asks every task to finish, waits up to `drain_ms`, then aborts those that are left and waits a short grace. Never
   * rejects. Called again while draining, it can only shorten the drain.
   */
  stop(init: { drain_ms: number }): Promise<StopReport> {
    touch(this);
    if (this.#phase === 'running') {
      this.#stop(init.drain_ms).then(this.#stopped.resolve, this.#stopped.reject);
    } else if (this.#phase === 'draining' && sched.now_ms() + init.drain_ms < this.#drain_ends_ms) {
      this.#drain_ends_ms = sched.now_ms() + init.drain_ms;
      this.#wakeStop();
    }
    return this.#stopped.promise;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop({ drain_ms: DRAIN_MS_DEFAULT });
  }

  /** How each kind of long-lived task is. */
  health(): KindHealth[] {
    return [...this.#kinds.values()].map(healthOf).filter((health) => health !== undefined);
  }

  totals(): TaskTotals[] {
    return [...this.#kinds.values()].map(totalsOf);
  }

  #record(kind: string): KindRecord {
    const known = this.#kinds.get(kind);
    if (known !== undefined) return known;
    assert(this.#kinds.size < KINDS_MAX, 'task kinds are a fixed set of words');
    const record = newRecord(kind, this.#aborting.signal, this.#stopping.signal);
    this.#kinds.set(kind, record);
    return record;
  }

  #began(record: KindRecord): void {
    record.spawned_total += 1;
    record.live += 1;
    this.#live += 1;
  }

  #ended(record: KindRecord): void {
    record.live -= 1;
    this.#live -= 1;
    if (this.#live === 0) this.#wakeStop();
  }

  #start(instance: Instance): void {
    touch(this);
    if (this.#phase !== 'running') return;
    const { record, index } = instance;
    const { kind } = record;
    const controller = new AbortController();
    const ctx: TaskContext = { kind, index, signal: controller.signal, stopping: this.#stopping.signal };
    instance.state = 'running';
    instance.controller = controller;
    this.#began(record);
    const started = sched.task(`${kind}#${index}`, async () => {
      touch(this);
      // A stop may come between the decision to start and the start.
      if (this.#phase === 'running') await record.spawned!.task(ctx);
    });
    started.then(
      () => this.#instanceEnded(instance, undefined),
      (error: unknown) => this.#instanceEnded(instance, { error }),
    );
  }

  #instanceEnded(instance: Instance, failure: { error: unknown } | undefined): void {
    touch(this);
    const { record, index } = instance;
    const { kind } = record;
    // Before the stop only a kill aborts a task, and then it is a crash however the task ended.
    const killed = instance.controller?.signal.aborted ? { error: instance.controller.signal.reason } : undefined;
    instance.controller = undefined;
    if (this.#phase !== 'running') {
      instance.state = 'stopped';
      if (this.#phase === 'draining') record.canceled_total += 1;
      if (failure !== undefined && !isRonError(failure.error, 'canceled')) {
        instance.last_error = failure.error;
        this.#report({ event: 'crashed', kind, index, error: failure.error });
      }
    } else if (killed !== undefined || failure !== undefined) {
      this.#crashed(instance, (killed ?? failure)!.error);
    } else if (record.spawned!.criticality === 'critical') {
      this.#crashed(instance, new RonError('internal', `critical task ${kind} returned before the stop`, { op: kind }));
    } else {
      instance.state = 'done';
    }
    this.#ended(record);
  }

  #crashed(instance: Instance, error: unknown): void {
    const { record, index } = instance;
    const { kind } = record;
    const now_ms = sched.now_ms();
    record.crashed_total += 1;
    instance.last_error = error;
    instance.crashed_at_ms = instance.crashed_at_ms.filter((at_ms) => now_ms - at_ms < this.#window_ms);
    instance.crashed_at_ms.push(now_ms);
    if (instance.crashed_at_ms.length > record.spawned!.restarts_max) return this.#giveUp(instance, error);
    const restart_ms = backoff_ms(instance.crashed_at_ms.length);
    instance.state = 'restarting';
    // The task may have held the last socket: the wait for its restart must keep the process alive in its place.
    instance.restart = sched.timer(restart_ms, () => this.#restart(instance), `restart ${kind}`, { keepAlive: true });
    this.#report({ event: 'crashed', kind, index, error, restart_ms });
  }

  #restart(instance: Instance): void {
    touch(this);
    instance.restart = undefined;
    instance.record.restarted_total += 1;
    this.#start(instance);
  }

  #giveUp(instance: Instance, error: unknown): void {
    const { record, index } = instance;
    const { kind } = record;
    instance.state = 'failed';
    if (record.spawned!.criticality !== 'critical') return this.#report({ event: 'failed', kind, index, error });
    this.#report({ event: 'fatal', kind, index, error });
    if (this.#fatal !== undefined) return;
    this.#fatal = { kind, error };
    harmless(() => this.#onFatal?.(kind, error));
  }

  #oneShotEnded(record: KindRecord, error: unknown): void {
    touch(this);
    record.oneShots -= 1;
    if (this.#phase === 'draining' && isRonError(error, 'canceled')) record.canceled_total += 1;
    this.#ended(record);
  }

  async #stop(drain_ms: number): Promise<StopReport> {
    this.#phase = 'draining';
    this.#drain_ends_ms = sched.now_ms() + drain_ms;
    for (const instance of this.#instances()) this.#cancelRestart(instance);
    // [storage I-5] [kms I-5] [index I-5] [edge I-5] [interop I-5] Every task gets this signal.
    this.#stopping.abort(new RonError('canceled', 'the process is stopping'));
    // Looked at again after each wake: work in hand may have started a one-shot in the meantime.
    while (this.#live > 0 && sched.now_ms() < this.#drain_ends_ms) await this.#waitIdle(this.#drain_ends_ms);
    let aborted = 0;
    if (this.#live > 0) {
      this.#phase = 'aborting';
      // [storage I-6] [kms I-6] [index I-6] [edge I-6] [interop I-6] The drain is over: stragglers are aborted and counted by kind.
      aborted = this.#abortLive();
      const grace_ends_ms = sched.now_ms() + this.#abort_grace_ms;
      while (this.#live > 0 && sched.now_ms() < grace_ends_ms) await this.#waitIdle(grace_ends_ms);
    }
    touch(this);
    this.#phase = 'stopped';
    if (this.#live > 0) this.#reportStuck();
    return { aborted, stuck: this.#live };
  }

  /** Waits until no task is alive, or the time has come. */
  #waitIdle(ends_ms: number): Promise<void> {
    const parked = sched.park<void>('supervisor.stop');
    const wait_ms = ends_ms - sched.now_ms();
    const timer = sched.timer(wait_ms, () => this.#wakeStop(), 'supervisor.stop', { keepAlive: true });
    this.#wait = { parked, timer };
    return parked.promise;
  }

  #wakeStop(): void {
    touch(this);
    const wait = this.#wait;
    this.#wait = undefined;
    wait?.timer.cancel();
    wait?.parked.wake();
  }

  #cancelRestart(instance: Instance): void {
    if (instance.state !== 'restarting') return;
    instance.restart?.cancel();
    instance.restart = undefined;
    instance.state = 'stopped';
  }

  #abortLive(): number {
    const reason = new RonError('canceled', 'the drain ended before the task did');
    let aborted = 0;
    for (const record of this.#kinds.values()) {
      aborted += record.live;
      record.aborted_total += record.live;
      if (record.oneShots > 0) this.#report({ event: 'aborted', kind: record.kind, index: -1 });
    }
    for (const { controller, record, index } of this.#instances()) {
      if (controller === undefined) continue;
      this.#report({ event: 'aborted', kind: record.kind, index });
      controller.abort(reason);
    }
    this.#aborting.abort(reason);
    return aborted;
  }

  #reportStuck(): void {
    for (const record of this.#kinds.values()) {
      if (record.oneShots > 0) this.#report({ event: 'stuck', kind: record.kind, index: -1 });
    }
    for (const { controller, record, index } of this.#instances()) {
      if (controller !== undefined) this.#report({ event: 'stuck', kind: record.kind, index });
    }
  }

  *#instances(): Iterable<Instance> {
    for (const record of this.#kinds.values()) yield* record.instances;
  }

  #canceled(kind: string): RonError {
    return new RonError('canceled', `the process is stopping: no new ${kind}`, { op: kind });
  }

  #report(event: SupervisorEvent): void {
    harmless(() => this.#log?.(event));
  }
}

/**
 * Doubles from 100 ms with the number of recent crashes; up to half as much again, so that a pool spreads out. It stops
 * growing where that half just fits into 5 s: the longest waits are spread out too.
 */
function backoff_ms(crashes: number): number {
  const base_ms = Math.min(BACKOFF_MS_MIN * 2 ** (crashes - 1), BACKOFF_MS_MAX / 1.5);
  return base_ms * (1 + sched.random() / 2);
}

/** A callback that throws must not turn one task's crash into the supervisor's. */
function harmless(call: () => void): void {
  try {
    call();
  } catch {
    // The callback that would get the report is the one that threw.
  }
}
