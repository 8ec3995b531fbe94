/**
 * The concurrency of a service, declared once: its channels, tasks, locks and deadlines with their numbers.
 *
 * Contract: tasks and channels are built from the declaration (see runtime.ts), and the tables and drawings in `docs/` are
 * rendered from it, so they cannot contradict the code. Names become literal types: a name that is not declared does not
 * compile. A declaration that contradicts itself is refused where it is made.
 * Bound: every channel has a capacity. Overflow: every channel states its policy.
 */
import { assert, POLICIES, laneInit, requireLanes, type LaneDeclaration, type LaneInit } from '@ron/kernel';

interface Ends {
  /** Senders and receivers: names of tasks, of `actors`, `listener` or `supervisor`, separated by commas. */
  readonly from: string;
  readonly to: string;
}

interface Bounded {
  readonly capacity: number;
  /**
   * Its name in metrics, where operators know it by another one. Default: its own. Work queues with the same label are
   * parts of one and are shown added up; they have different lanes.
   */
  readonly label?: string;
  /** The config key that overrides the capacity. Default none: it is fixed. */
  readonly config_key?: string;
  /** The share of the key's value that is the capacity, if several channels divide it. Default 1. */
  readonly config_share?: number;
}

/** A request queue: lanes, sojourn limit, every accepted job answered once. Refuses new work when it is full. */
export interface WorkChannel extends Ends, Bounded {
  readonly kind: 'work';
  readonly lanes: readonly LaneDeclaration[];
  /** The usual budget of a job. Default: each job's own. */
  readonly budget_ms?: number;
}

export interface MpscChannel extends Ends, Bounded {
  readonly kind: 'mpsc';
  readonly policy: 'reject new' | 'drop oldest' | 'wait, then drop oldest';
  /** The effect of overflow on the caller. */
  readonly overflow: string;
  /** The metric that counts it. Default `queue_dropped_total{queue}`. */
  readonly metric?: string;
}

export interface BroadcastChannel extends Ends, Bounded {
  readonly kind: 'broadcast';
  /** Default 64. */
  readonly subscribers_max?: number;
}

export interface WatchChannel extends Ends {
  readonly kind: 'watch';
}

/** A queue that the service builds itself, because it has its own order, for example by urgency. */
export interface OwnChannel extends Ends, Bounded {
  readonly kind: 'own';
  readonly policy: string;
  /** The effect of overflow on the producer. */
  readonly overflow: string;
  /** The metric that counts it. */
  readonly metric: string;
}

export type Channel = WorkChannel | MpscChannel | BroadcastChannel | WatchChannel | OwnChannel;

export interface TaskKind {
  /** Instances; 0 for one-shots, which run on demand. */
  readonly count: number;
  /** The config key that overrides the count. */
  readonly config_key?: string;
  readonly criticality: 'critical' | 'important' | 'optional';
  /** Crashes within the window that are answered by a restart. Default: the service's. */
  readonly restarts_max?: number;
  readonly does: string;
}

export interface Lock {
  /** Locks nest in ascending rank only. */
  readonly rank: number;
  readonly guards: string;
}

export interface DeadlineKind {
  readonly ms: number;
  /** The config key that overrides it; a reload takes effect at once. */
  readonly config_key?: string;
  readonly covers: string;
}

export interface BreakerKind {
  readonly error_window_ms: number;
  /** Share of failed calls, 0 to 1, above which it opens. */
  readonly trip_threshold: number;
  readonly calls_min: number;
  readonly cooldown_ms: number;
  readonly half_open_probes: number;
  /** The service builds them itself, takes the numbers from `breakerKind`, and measures each target. Default false. */
  readonly is_own?: boolean;
  readonly guards: string;
}

export interface RetryKind {
  readonly policy: keyof typeof POLICIES;
  /** Why a second execution has no further effect. An operation without a reason is not retried. */
  readonly idempotent_because: string;
}

/** The path of a typical request through the service. */
export interface RequestPath {
  /** The channel in which it waits for a worker. Default none: the listener runs the handler. */
  readonly queue?: string;
  /** The deadline that bounds it. */
  readonly deadline: string;
  /** The case that is answered without a worker. */
  readonly shortcut?: string;
  /** Messages between its acceptance and its answer. The ends are names as in channels. */
  readonly steps: readonly (readonly [from: string, to: string, message: string])[];
  readonly answer: string;
}

export interface DrainPlan {
  /** Background work that is finished within the drain, after the requests. Default none. */
  readonly finishes?: string;
  /** Results that are persisted once the tasks have ended. Default none. */
  readonly flushes?: string;
  /** The resources, in the order in which they are closed at the end. */
  readonly closes: readonly string[];
}

/** Restarts answered per window before a task stays down. */
export interface Restarts {
  readonly max: number;
  readonly window_ms: number;
}

export interface Concurrency {
  readonly service: string;
  /** Default 5 per 60 s. */
  readonly restarts?: Restarts;
  /**
   * Labels of `busy_rejections_total`: `queue` is the name of the queue, any other name (`endpoint`, `route`) is the lane.
   * Default `['queue']`.
   */
  readonly busy_labels?: readonly string[];
  /** Reason codes that `rejected_total{reason}` counts in place of problem codes. Default none. */
  readonly reject_reasons?: readonly string[];
  readonly channels: Readonly<Record<string, Channel>>;
  readonly tasks: Readonly<Record<string, TaskKind>>;
  readonly locks: Readonly<Record<string, Lock>>;
  readonly deadlines: Readonly<Record<string, DeadlineKind>>;
  /** One row per kind of target; `peers` may stand for many breakers. Default none. */
  readonly breakers?: Readonly<Record<string, BreakerKind>>;
  /** Operations that are tried again. Default none. */
  readonly retries?: Readonly<Record<string, RetryKind>>;
  /** Labels of `backoff_retries_total`. Default `['op']`; `result` is the outcome of the retry. */
  readonly retry_labels?: readonly ('op' | 'result')[];
  /** Code that uses channels and is not a task, with a description. `listener` and `supervisor` need no entry. */
  readonly actors?: Readonly<Record<string, string>>;
  /** By route. Only for the drawings in `docs/concurrency.md`. */
  readonly requests?: Readonly<Record<string, RequestPath>>;
  /** Only for the drawings. */
  readonly drain?: DrainPlan;
}

export const RESTARTS_DEFAULT: Restarts = { max: 5, window_ms: 60_000 };

const NAME = /^[a-z][a-z0-9_]*$/;
const declarations = new WeakSet<object>();

/** Checks and freezes a declaration. */
export function declareConcurrency<const D extends Concurrency>(declaration: D): D {
  const { service, channels, tasks, locks, deadlines, breakers = {}, retries = {} } = declaration;
  for (const [what, table] of Object.entries({ channels, tasks, locks, deadlines, breakers, retries })) {
    for (const name of Object.keys(table)) assert(NAME.test(name), `${service}: ${what} ${name}: lower case words`);
  }
  for (const [name, channel] of Object.entries(channels)) {
    if (channel.kind === 'watch') continue;
    // [storage I-3] [kms I-3] [index I-3] [edge I-3] [interop I-3]
    assert(isCount(channel.capacity, 1), `${service}: channel ${name} has a capacity of at least 1`);
    if (channel.kind === 'work') requireLanes(`${service}: channel ${name}`, channel.lanes);
  }
  assert(
    hasNamesOfTheirOwn(channels),
    `${service}: every channel has a name of its own in metrics, or lanes of its own in a shared one`,
  );
  for (const [kind, task] of Object.entries(tasks)) {
    assert(isCount(task.count, 0), `${service}: task ${kind} has a count`);
  }
  for (const [name, deadline] of Object.entries(deadlines)) {
    assert(deadline.ms > 0, `${service}: deadline ${name} is positive`);
  }
  const ranks = Object.values(locks).map((lock) => lock.rank);
  assert(new Set(ranks).size === ranks.length, `${service}: every lock has a rank of its own`);
  declarations.add(declaration);
  return deepFreeze(declaration);
}

/** The name of a channel in metrics. */
export function labelOf(name: string, channel: Channel): string {
  return channel.kind === 'watch' ? name : (channel.label ?? name);
}

export const laneNames = ({ lanes }: Pick<WorkChannel, 'lanes'>): string[] => lanes.map((lane) => laneInit(lane).name);

/** A metric must not show two channels as one, unless they are parts of one work queue: those have lanes of their own. */
function hasNamesOfTheirOwn(channels: Concurrency['channels']): boolean {
  const shown = Object.entries(channels).flatMap(([name, channel]) => {
    const label = labelOf(name, channel);
    return channel.kind === 'work' ? laneNames(channel).map((lane) => `${label} ${lane}`) : [label];
  });
  const queues = Object.entries(channels).filter(([, channel]) => channel.kind === 'work');
  const labels = new Set(queues.map(([name, channel]) => labelOf(name, channel)));
  return new Set([...shown, ...labels]).size === shown.length + labels.size;
}

/** Whether a value came from `declareConcurrency`. The generator of `docs/` finds declarations by it. */
export function isConcurrency(value: unknown): value is Concurrency {
  return typeof value === 'object' && value !== null && declarations.has(value);
}

/** The Markdown tables of a service, one for each section of its declaration. */
export function renderConcurrency(declaration: Concurrency): string {
  const { channels, tasks, locks, deadlines, breakers = {}, retries = {}, restarts = RESTARTS_DEFAULT } = declaration;
  const sections = [
    section(
      'Channels',
      channels,
      ['Name', 'Kind', 'Capacity', 'From -> to', 'Policy', 'On overflow', 'Metric'],
      (name, channel) => [
        code(name),
        channel.kind,
        channel.kind === 'watch' ? '1' : configurable(String(channel.capacity), channel.config_key),
        `${channel.from} -> ${channel.to}`,
        ...overflowOf(channel, busyMetric(declaration, labelOf(name, channel))),
      ],
    ),
    section(
      'Lanes of work queues',
      lanesOf(channels),
      ['Lane', 'Queue', 'Priority', 'Reserved room', 'Fair by'],
      (_id, { queue, name, priority = 0, reserve_share = 0, key }) => [
        code(name),
        code(queue),
        String(priority),
        reserve_share === 0 ? 'none' : `${reserve_share * 100} %`,
        key ?? 'order of arrival',
      ],
    ),
    section('Tasks', tasks, ['Kind', 'Count', 'Criticality', 'Restart limit', 'Purpose'], (kind, task) => [
      code(kind),
      task.count === 0 ? 'on demand' : configurable(String(task.count), task.config_key),
      task.criticality,
      task.count === 0 ? 'not restarted' : `${task.restarts_max ?? restarts.max} per ${restarts.window_ms / 1000} s`,
      task.does,
    ]),
    section('Locks, taken in ascending rank', byRank(locks), ['Rank', 'Name', 'Guards'], (name, lock) => [
      String(lock.rank),
      code(name),
      lock.guards,
    ]),
    section('Deadlines', deadlines, ['Operation', 'Budget', 'Config key', 'Covers'], (name, deadline) => [
      code(name),
      `${deadline.ms} ms`,
      deadline.config_key === undefined ? 'fixed' : code(deadline.config_key),
      deadline.covers,
    ]),
    section('Breakers', breakers, ['Target', 'Opens', 'Closes', 'Guards'], (name, breaker) => [
      code(name),
      `over ${breaker.trip_threshold * 100} % errors in ${breaker.error_window_ms} ms, from ${breaker.calls_min} calls`,
      `after ${breaker.cooldown_ms} ms and ${breaker.half_open_probes} good ${breaker.half_open_probes === 1 ? 'probe' : 'probes'}`,
      breaker.guards,
    ]),
    section('Retries', retries, ['Operation', 'Policy', 'Tries', 'Why it is idempotent'], (name, retry) => [
      code(name),
      retry.policy,
      String(POLICIES[retry.policy].tries_max),
      retry.idempotent_because,
    ]),
  ];
  return sections.filter((text) => text !== '').join('\n\n');
}

/** One entry for each lane of each work queue. */
function lanesOf(channels: Concurrency['channels']): Record<string, LaneInit & { readonly queue: string }> {
  const lanes = Object.entries(channels).flatMap(([queue, channel]) =>
    channel.kind === 'work' ? channel.lanes.map((lane) => ({ queue, ...laneInit(lane) })) : [],
  );
  return Object.fromEntries(lanes.map((lane) => [`${lane.queue} ${lane.name}`, lane]));
}

/** `busy_rejections_total{queue="work",endpoint}`: with the labels of this service. */
function busyMetric(declaration: Concurrency, queue: string): string {
  const labels = (declaration.busy_labels ?? ['queue']).map((label) =>
    label === 'queue' ? `queue="${queue}"` : label,
  );
  return `busy_rejections_total{${labels.join(',')}}`;
}

/** Policy, effect on the caller, metric. */
function overflowOf(channel: Channel, busy: string): [policy: string, overflow: string, metric: string] {
  if (channel.kind === 'work') {
    return ['reject new; in standing overload newest first', '429 `busy` with `Retry-After`', code(busy)];
  }
  if (channel.kind === 'mpsc' || channel.kind === 'own') {
    return [channel.policy, channel.overflow, code(channel.metric ?? 'queue_dropped_total{queue}')];
  }
  if (channel.kind === 'broadcast') {
    return ['drop oldest, per subscriber', 'the subscriber lags; warned once in 5 s', code('bus_lagged_total{topic}')];
  }
  return ['last write wins', 'does not overflow', ''];
}

function section<T>(
  title: string,
  table: Readonly<Record<string, T>>,
  columns: readonly string[],
  row: (name: string, entry: T) => readonly string[],
): string {
  const entries = Object.entries(table);
  if (entries.length === 0) return '';
  const rows = entries.map(([name, entry]) => line(row(name, entry)));
  return [`**${title}**`, '', line(columns), line(columns.map(() => '---')), ...rows].join('\n');
}

const line = (cells: readonly string[]): string =>
  `| ${cells.map((cell) => cell.replaceAll('|', '\\|').replaceAll('\n', ' ')).join(' | ')} |`;

const code = (text: string): string => `\`${text}\``;

const configurable = (text: string, key: string | undefined): string =>
  key === undefined ? text : `${text} (${code(key)})`;

function byRank(locks: Concurrency['locks']): Record<string, Lock> {
  return Object.fromEntries(Object.entries(locks).toSorted(([, left], [, right]) => left.rank - right.rank));
}

const isCount = (value: number, min: number): boolean => Number.isSafeInteger(value) && value >= min;

function deepFreeze<T extends object>(object: T): T {
  for (const value of Object.values(object)) if (typeof value === 'object' && value !== null) deepFreeze(value);
  return Object.freeze(object);
}
