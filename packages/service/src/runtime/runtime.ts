/**
 * Builds the primitives of a service from its declaration, and measures them under the same names in every service.
 *
 * Contract: a channel, task, lock, deadline or breaker exists only if it is declared (others do not compile, and throw),
 * with the declared numbers or those of the config key it names; `unbuilt()` lists declarations that were never built, so
 * a test can hold a service to its declaration. Everything built is measured.
 * Bound: the declaration; a channel is built once. Overflow: per channel, as declared.
 * Cancellation: `stop` ends the tasks, `close` the channels.
 */
import {
  Breaker,
  type BreakerInit,
  Broadcast,
  Cell,
  Deadline,
  type DeadlineInit,
  assert,
  ERRORS,
  RonError,
  Mpsc,
  RetryBudget,
  POLICIES,
  type RetryPolicy,
  idempotent,
  retry,
  type RetryInit,
  Supervisor,
  type StopReport,
  type SupervisorEvent,
  type TaskContext,
  Watch,
  WorkQueue,
} from '@ron/kernel';
import { configValue } from '@ron/config';
import type { Log, Counter, Metrics } from '@ron/telemetry';
import {
  labelOf,
  laneNames,
  RESTARTS_DEFAULT,
  type BreakerKind,
  type Channel,
  type Concurrency,
} from './declaration.ts';
import { measureRuntime, type BreakerGroup, type MeasuredQueue, type OwnQueue } from './runtime-metrics.ts';
import { declared, isKind, retryLabels, type ChannelName, type NameIn } from './runtime-names.ts';

export interface RuntimeInit {
  metrics: Metrics;
  log: Log;
  /** Where the declared config keys are read, at each use. A `Watch` or `ConfigSource` fits. Default: declared numbers. */
  config?: { readonly value: unknown };
  /** Called once when a critical task stays down. */
  onFatal?: (kind: string, error: unknown) => void;
}

/** Where a channel takes its capacity from. */
interface Shared {
  readonly config_key?: string;
  readonly config_share?: number;
}

/** Operations of any listener or client, besides the declared deadlines. */
const IO_OPS = ['connect', 'handler', 'header', 'idle', 'read', 'write'];
const BREAKERS_MAX = 4096;

export class ServiceRuntime<const D extends Concurrency> implements AsyncDisposable {
  readonly declaration: D;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly supervisor: Supervisor;
  /** For refusals: `rejected.at(code).inc()`. */
  readonly rejected: Counter<'reason'>;
  /** Counted by every deadline that `deadline()` gives out. */
  readonly io_timeouts: Counter<'op'>;
  readonly backoff_retries: Counter<'op' | 'result'>;
  readonly #config: { readonly value: unknown } | undefined;
  /** Values read from the configuration in force: every request needs its deadline. */
  #numbers: { config: unknown; byKey: Map<string, number> } = { config: undefined, byKey: new Map() };
  readonly #built = new Set<string>();
  readonly #queues = new Map<string, MeasuredQueue>();
  readonly #mpscs = new Map<string, Mpsc<never>>();
  readonly #broadcasts = new Map<string, Broadcast<never>>();
  readonly #watches = new Map<string, Watch<never>>();
  readonly #owns = new Map<string, OwnQueue>();
  readonly #breakers: ReadonlyMap<string, BreakerGroup>;
  readonly #budget = new RetryBudget();
  #isClosed = false;
  readonly #onExpire = (op: string): void => this.io_timeouts.at(op).inc();
  readonly #onRetry = (op: string, result: string): void => this.backoff_retries.at({ op, result }).inc();

  constructor(declaration: D, init: RuntimeInit) {
    const { metrics, log, config, onFatal } = init;
    const { restarts = RESTARTS_DEFAULT } = declaration;
    this.declaration = declaration;
    this.metrics = metrics;
    this.log = log;
    this.#config = config;
    const kinds = Object.entries(declaration.breakers ?? {}).filter(([, kind]) => kind.is_own !== true);
    this.#breakers = new Map(kinds.map(([kind]) => [kind, { live: new Set(), forgotten_total: 0 }]));
    this.supervisor = new Supervisor({
      restarts_max: restarts.max,
      window_ms: restarts.window_ms,
      log: (event) => this.#logTask(event),
      ...(onFatal === undefined ? {} : { onFatal }),
    });
    const codes = Object.entries(ERRORS).flatMap(([code, row]) => (row.metric.startsWith('rejected_') ? [code] : []));
    this.rejected = metrics.counter('rejected_total', 'Requests refused, by reason.', {
      reason: [...codes, ...(declaration.reject_reasons ?? [])],
    });
    const ops = Object.keys(declaration.deadlines);
    this.io_timeouts = metrics.counter('io_timeouts_total', 'Deadlines that passed, by operation.', {
      op: [...new Set([...IO_OPS, ...ops])],
    });
    this.backoff_retries = metrics.counter(
      'backoff_retries_total',
      'Retries after a wait, by operation.',
      retryLabels(declaration),
    );
    this.#checkConfigKeys();
    measureRuntime(metrics, {
      declaration,
      supervisor: this.supervisor,
      queues: this.#queues,
      mpscs: this.#mpscs,
      broadcasts: this.#broadcasts,
      owns: this.#owns,
      breakers: this.#breakers,
    });
  }

  workQueue(name: ChannelName<D, 'work'>): WorkQueue {
    const channel = this.#channel(name, 'work');
    const { lanes, budget_ms } = channel;
    const capacity = this.#capacity(channel);
    const queue = new WorkQueue(name, { capacity, lanes, ...(budget_ms === undefined ? {} : { budget_ms }) });
    this.#queues.set(name, { label: labelOf(name, channel), queue, lanes: laneNames(channel) });
    return queue;
  }

  mpsc<T>(name: ChannelName<D, 'mpsc'>): Mpsc<T> {
    const channel = this.#channel(name, 'mpsc');
    const mpsc = new Mpsc<T>(name, this.#capacity(channel));
    this.#mpscs.set(labelOf(name, channel), mpsc as unknown as Mpsc<never>);
    return mpsc;
  }

  broadcast<T>(name: ChannelName<D, 'broadcast'>): Broadcast<T> {
    const channel = this.#channel(name, 'broadcast');
    const { subscribers_max } = channel;
    const broadcast = new Broadcast<T>(name, this.#capacity(channel), {
      ...(subscribers_max !== undefined && { subscribers_max }),
      onLag: (lagged, subscriber) =>
        this.log.warn({ topic: name, subscriber, lagged }, 'a subscriber is too slow and lost events'),
    });
    this.#broadcasts.set(labelOf(name, channel), broadcast as unknown as Broadcast<never>);
    return broadcast;
  }

  watch<T>(name: ChannelName<D, 'watch'>, initial: T): Watch<T> {
    this.#channel(name, 'watch');
    const watch = new Watch(name, initial);
    this.#watches.set(name, watch as unknown as Watch<never>);
    return watch;
  }

  /** A queue that the service builds itself, with the declared capacity. */
  own<Q extends OwnQueue>(name: ChannelName<D, 'own'>, build: (capacity: number) => Q): Q {
    const channel = this.#channel(name, 'own');
    const queue = build(this.#capacity(channel));
    this.#owns.set(labelOf(name, channel), queue);
    return queue;
  }

  /** A lock of this name and rank. There may be several, one for each guarded value. */
  cell<S>(name: NameIn<D['locks']>, initial: S): Cell<S> {
    const lock = declared('lock', this.declaration.locks, name);
    this.#built.add(`lock ${name}`);
    return new Cell(name, lock.rank, initial);
  }

  /** A fresh deadline with the budget in force now. Its expiry is counted in `io_timeouts_total{op}`. */
  deadline(name: NameIn<D['deadlines']>, init: Pick<DeadlineInit, 'parent' | 'signal'> = {}): Deadline {
    const kind = declared('deadline', this.declaration.deadlines, name);
    this.#built.add(`deadline ${name}`);
    return Deadline.after(name, this.#number(kind.config_key, kind.ms), { ...init, onExpire: this.#onExpire });
  }

  /** A breaker for one target of the declared kind; those of a kind are shown together. */
  breaker(name: NameIn<D['breakers']>, init: Pick<BreakerInit, 'verdictOf'> & { target?: string } = {}): Breaker {
    const { guards: _, is_own, ...numbers } = declared('breaker', this.declaration.breakers ?? {}, name);
    assert(is_own !== true, `breakers ${name} are built by the service: use breakerKind`);
    const { target = name, ...rest } = init;
    const breaker = new Breaker(target, { ...numbers, ...rest });
    this.#built.add(`breaker ${name}`);
    const { live } = this.#breakers.get(name)!;
    assert(live.size < BREAKERS_MAX, `at most ${BREAKERS_MAX} breakers of a kind: forget those of peers that left`);
    live.add(breaker);
    return breaker;
  }

  /** The declared numbers of breakers that the service builds and measures itself. */
  breakerKind(name: NameIn<D['breakers']>): Omit<BreakerKind, 'guards' | 'is_own'> {
    const { guards: _, is_own, ...numbers } = declared('breaker', this.declaration.breakers ?? {}, name);
    assert(is_own === true, `breakers ${name} are built by the runtime: use breaker`);
    this.#built.add(`breaker ${name}`);
    return numbers;
  }

  /** Removes a breaker whose target is gone from the metrics. */
  forget(breaker: Breaker): void {
    for (const group of this.#breakers.values()) {
      if (group.live.delete(breaker)) group.forgotten_total += breaker.rejected_total;
    }
  }

  /** Starts the declared number of instances of a long-lived task. */
  spawn(kind: NameIn<D['tasks']>, task: (ctx: TaskContext) => Promise<void>): void {
    const { count, config_key, criticality, restarts_max } = declared('task', this.declaration.tasks, kind);
    assert(count > 0, `task ${kind} is declared as one-shot: use run`);
    this.#built.add(`task ${kind}`);
    const limit = restarts_max === undefined ? {} : { restarts_max };
    this.supervisor.spawn(kind, { criticality, count: this.#number(config_key, count), ...limit }, task);
  }

  /** Runs a one-shot task of a declared kind, tracked until it ends. */
  run<T>(kind: NameIn<D['tasks']>, work: (ctx: TaskContext) => Promise<T>): Promise<T> {
    const { count } = declared('task', this.declaration.tasks, kind);
    assert(count === 0, `task ${kind} is declared as long-lived: use spawn`);
    this.#built.add(`task ${kind}`);
    return this.supervisor.run(kind, work);
  }

  /**
   * Runs a declared operation and retries it by its policy. `policy` may be replaced by one with configured numbers. All
   * callers share one retry budget.
   */
  retry<T>(
    op: NameIn<D['retries']>,
    work: (signal: AbortSignal, attempt: number) => Promise<T>,
    init: Pick<RetryInit, 'deadline' | 'breaker'> & { policy?: RetryPolicy },
  ): Promise<T> {
    const { policy } = declared('retry', this.declaration.retries ?? {}, op);
    this.#built.add(`retry ${op}`);
    const shared = { budget: this.#budget, onRetry: this.#onRetry };
    return retry(idempotent(op, work), { policy: POLICIES[policy], ...init, ...shared });
  }

  /** Counts the retries of a declared operation that the service retries itself, with budgets of its own. */
  retryCounter(op: NameIn<D['retries']>): (result: 'ok' | 'failed') => void {
    declared('retry', this.declaration.retries ?? {}, op);
    this.#built.add(`retry ${op}`);
    return (result) => this.#onRetry(op, result);
  }

  /** Declarations that were never built. Empty when the declaration is accurate. */
  unbuilt(): string[] {
    const { channels, tasks, locks, deadlines, breakers = {}, retries = {} } = this.declaration;
    const tables = {
      channel: channels,
      task: tasks,
      lock: locks,
      deadline: deadlines,
      breaker: breakers,
      retry: retries,
    };
    const all = Object.entries(tables).flatMap(([what, table]) => Object.keys(table).map((name) => `${what} ${name}`));
    return all.filter((name) => !this.#built.has(name));
  }

  /**
   * Stops the tasks: refuses new work, lets tasks finish within `drain_ms`, and aborts the others. Never rejects. A second
   * call can only shorten the drain.
   */
  stop(init: { drain_ms: number }): Promise<StopReport> {
    for (const { queue } of this.#queues.values()) queue.close();
    return this.supervisor.stop(init);
  }

  /** Closes every channel. Queued work is answered with `draining`. Call it once the tasks have ended. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    const stopped = new RonError('draining', `${this.declaration.service} has stopped`);
    for (const { queue } of this.#queues.values()) queue.abortQueued(stopped);
    for (const table of [this.#mpscs, this.#broadcasts, this.#watches, this.#owns]) {
      for (const channel of table.values()) channel.close();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop({ drain_ms: 0 });
    this.close();
  }

  #channel<Kind extends Channel['kind']>(name: string, kind: Kind): Channel & { kind: Kind } {
    const channel: Channel = declared('channel', this.declaration.channels, name);
    assert(isKind(channel, kind), `channel ${name} is declared as ${channel.kind}, not as ${kind}`);
    assert(!this.#built.has(`channel ${name}`), `channel ${name} is built once`);
    this.#built.add(`channel ${name}`);
    return channel;
  }

  #capacity({ config_key, config_share = 1, capacity }: { readonly capacity: number } & Shared): number {
    return config_key === undefined || this.#config === undefined
      ? capacity
      : Math.max(1, Math.floor(this.#number(config_key, capacity) * config_share));
  }

  /** The number of the config key in force now, or the declared one where there is no key or no config. */
  #number(config_key: string | undefined, fallback: number): number {
    if (config_key === undefined || this.#config === undefined) return fallback;
    const config = this.#config.value;
    if (config !== this.#numbers.config) this.#numbers = { config, byKey: new Map() };
    let value = this.#numbers.byKey.get(config_key);
    if (value === undefined) {
      const found = configValue(config, config_key);
      assert(typeof found === 'number', `config key ${config_key} gives a number`);
      value = found;
      this.#numbers.byKey.set(config_key, value);
    }
    return value;
  }

  /** A key that the configuration lacks fails the start, not the first request. */
  #checkConfigKeys(): void {
    const { channels, tasks, deadlines } = this.declaration;
    for (const entry of [channels, tasks, deadlines].flatMap((table) => Object.values<object>(table))) {
      if ('config_key' in entry && typeof entry.config_key === 'string') this.#number(entry.config_key, 0);
    }
  }

  #logTask(event: SupervisorEvent): void {
    const { event: what, kind, index, error, restart_ms } = event;
    const fields = { kind, index, restart_ms, ...(error === undefined ? {} : { err: error }) };
    if (what === 'fatal' || what === 'failed' || what === 'stuck') this.log.error(fields, `task ${what}`);
    else this.log.warn(fields, `task ${what}`);
  }
}
