/**
 * A service's primitives, built from its declaration and counted under the names that its operators know.
 *
 * Promise: a channel, task, lock, deadline or breaker exists only if it is declared (others do not compile, and throw),
 * with the declared numbers or those of the config key it names; `unbuilt()` lists what was declared and never built, so
 * a test can hold a service to its declaration. Everything built is measured.
 * Bound: the declaration; a channel is built once. Overflow: per channel, as declared.
 * Cancellation: `stop` closes the request queues, lets tasks finish within the drain, aborts the rest, closes what is
 * left; it always resolves. Called again it can only shorten the drain.
 */
import { Breaker, type BreakerInit } from './breaker.ts';
import { Broadcast } from './broadcast.ts';
import { Cell } from './cell.ts';
import { configValue } from './config.ts';
import { Deadline, type DeadlineInit } from './deadline.ts';
import { assert, ERRORS, RonError } from './errors.ts';
import type { Log } from './log.ts';
import type { Counter } from './metrics-series.ts';
import type { Metrics } from './metrics.ts';
import { Mpsc } from './mpsc.ts';
import { nearest } from './nearest.ts';
import { RESTARTS_DEFAULT, type Channel, type Concurrency } from './registry.ts';
import { measureRuntime, type BreakerGroup, type MeasuredQueue } from './runtime-metrics.ts';
import { Supervisor, type StopReport, type SupervisorEvent, type TaskContext } from './supervisor.ts';
import { Watch } from './watch.ts';
import { WorkQueue } from './work-queue.ts';

/** Names of the declared channels of one kind. */
type ChannelName<D extends Concurrency, Kind extends Channel['kind']> = {
  [N in keyof D['channels']]: D['channels'][N] extends { kind: Kind } ? N : never;
}[keyof D['channels']] &
  string;

type NameIn<Table> = keyof NonNullable<Table> & string;

export interface RuntimeInit {
  metrics: Metrics;
  log: Log;
  /** Where the declared config keys are read, at each use. A `Watch` or `ConfigSource` fits. Default: declared numbers. */
  config?: { readonly value: unknown };
  /** Told once when a critical task stays down. */
  onFatal?: (kind: string, error: unknown) => void;
  /** Values of `rejected_total{reason}` besides the error codes. */
  rejected_reasons?: readonly string[];
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
  readonly backoff_retries: Counter<'op'>;
  readonly #config: { readonly value: unknown } | undefined;
  readonly #built = new Set<string>();
  readonly #queues = new Map<string, MeasuredQueue>();
  readonly #mpscs = new Map<string, Mpsc<never>>();
  readonly #broadcasts = new Map<string, Broadcast<never>>();
  readonly #watches = new Map<string, Watch<never>>();
  readonly #breakers: ReadonlyMap<string, BreakerGroup>;
  readonly #onExpire = (op: string): void => this.io_timeouts.at(op).inc();

  constructor(declaration: D, init: RuntimeInit) {
    const { metrics, log, config, onFatal, rejected_reasons = [] } = init;
    const { restarts = RESTARTS_DEFAULT } = declaration;
    this.declaration = declaration;
    this.metrics = metrics;
    this.log = log;
    this.#config = config;
    const kinds = Object.keys(declaration.breakers ?? {});
    this.#breakers = new Map(kinds.map((kind) => [kind, { live: new Set(), forgotten_total: 0 }]));
    this.supervisor = new Supervisor({
      restarts_max: restarts.max,
      window_ms: restarts.window_ms,
      log: (event) => this.#logTask(event),
      ...(onFatal === undefined ? {} : { onFatal }),
    });
    const reasons = Object.entries(ERRORS).flatMap(([code, row]) => (row.metric.startsWith('rejected_') ? [code] : []));
    this.rejected = metrics.counter('rejected_total', 'Requests refused, by reason.', {
      reason: [...reasons, ...rejected_reasons],
    });
    const ops = Object.keys(declaration.deadlines);
    this.io_timeouts = metrics.counter('io_timeouts_total', 'Deadlines that passed, by operation.', {
      op: [...new Set([...IO_OPS, ...ops])],
    });
    this.backoff_retries = metrics.counter('backoff_retries_total', 'Retries after a wait, by operation.', { op: ops });
    this.#checkConfigKeys();
    measureRuntime(metrics, {
      declaration,
      supervisor: this.supervisor,
      queues: this.#queues,
      mpscs: this.#mpscs,
      broadcasts: this.#broadcasts,
      breakers: this.#breakers,
    });
  }

  workQueue(name: ChannelName<D, 'work'>): WorkQueue {
    const channel = this.#channel(name, 'work');
    const { lanes, budget_ms } = channel;
    const capacity = this.#number(channel.config_key, channel.capacity);
    const queue = new WorkQueue(name, { capacity, lanes, ...(budget_ms === undefined ? {} : { budget_ms }) });
    this.#queues.set(name, { queue, lanes });
    return queue;
  }

  mpsc<T>(name: ChannelName<D, 'mpsc'>): Mpsc<T> {
    const channel = this.#channel(name, 'mpsc');
    const mpsc = new Mpsc<T>(name, this.#number(channel.config_key, channel.capacity));
    this.#mpscs.set(name, mpsc as unknown as Mpsc<never>);
    return mpsc;
  }

  broadcast<T>(name: ChannelName<D, 'broadcast'>): Broadcast<T> {
    const channel = this.#channel(name, 'broadcast');
    const broadcast = new Broadcast<T>(name, this.#number(channel.config_key, channel.capacity), {
      onLag: (lagged, subscriber) =>
        this.log.warn({ topic: name, subscriber, lagged }, 'a subscriber is too slow and lost events'),
    });
    this.#broadcasts.set(name, broadcast as unknown as Broadcast<never>);
    return broadcast;
  }

  watch<T>(name: ChannelName<D, 'watch'>, initial: T): Watch<T> {
    this.#channel(name, 'watch');
    const watch = new Watch(name, initial);
    this.#watches.set(name, watch as unknown as Watch<never>);
    return watch;
  }

  /** A lock of this name and rank. There may be several, one for each thing that it guards. */
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
    const { guards: _, ...numbers } = declared('breaker', this.declaration.breakers ?? {}, name);
    const { target = name, ...rest } = init;
    const breaker = new Breaker(target, { ...numbers, ...rest });
    this.#built.add(`breaker ${name}`);
    const { live } = this.#breakers.get(name)!;
    assert(live.size < BREAKERS_MAX, `at most ${BREAKERS_MAX} breakers of a kind: forget those of peers that left`);
    live.add(breaker);
    return breaker;
  }

  /** No longer shows a breaker whose target is gone. */
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

  /** What was declared and never built. Empty when the declaration is the truth. */
  unbuilt(): string[] {
    const { channels, tasks, locks, deadlines, breakers = {} } = this.declaration;
    const tables = { channel: channels, task: tasks, lock: locks, deadline: deadlines, breaker: breakers };
    const all = Object.entries(tables).flatMap(([what, table]) => Object.keys(table).map((name) => `${what} ${name}`));
    return all.filter((name) => !this.#built.has(name));
  }

  /** Stops everything that was built. Never rejects. */
  async stop(init: { drain_ms: number }): Promise<StopReport> {
    for (const { queue } of this.#queues.values()) queue.close();
    const report = await this.supervisor.stop(init);
    const gone = new RonError('draining', `${this.declaration.service} has stopped`);
    for (const { queue } of this.#queues.values()) queue.abortQueued(gone);
    for (const table of [this.#mpscs, this.#broadcasts, this.#watches])
      for (const channel of table.values()) channel.close();
    return report;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop({ drain_ms: 0 });
  }

  #channel<Kind extends Channel['kind']>(name: string, kind: Kind): Channel & { kind: Kind } {
    const channel: Channel = declared('channel', this.declaration.channels, name);
    assert(isKind(channel, kind), `channel ${name} is declared as ${channel.kind}, not as ${kind}`);
    assert(!this.#built.has(`channel ${name}`), `channel ${name} is built once`);
    this.#built.add(`channel ${name}`);
    return channel;
  }

  /** The number of the config key in force now, or the declared one where there is no key or no config. */
  #number(config_key: string | undefined, fallback: number): number {
    if (config_key === undefined || this.#config === undefined) return fallback;
    const value = configValue(this.#config.value, config_key);
    assert(typeof value === 'number', `config key ${config_key} gives a number`);
    return value;
  }

  /** A key that the config does not have must show at the start, not at the first request. */
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

function declared<T>(what: string, table: Readonly<Record<string, T>>, name: string): T {
  const entry = Object.hasOwn(table, name) ? table[name] : undefined;
  if (entry !== undefined) return entry;
  const meant = nearest(name, Object.keys(table));
  throw new RonError(
    'internal',
    `${what} ${name} is not declared${meant === undefined ? '' : `; did you mean ${meant}?`}`,
  );
}

function isKind<Kind extends Channel['kind']>(channel: Channel, kind: Kind): channel is Channel & { kind: Kind } {
  return channel.kind === kind;
}
