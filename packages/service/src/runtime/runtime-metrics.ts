/**
 * Exports the queues, tasks and breakers of a service as metrics, under the same names in every service.
 *
 * Contract: each value is read from its owner at scrape, so counting has no cost of its own.
 * Bound: one series for each declared name.
 */
import type { Breaker, BreakerState, Broadcast, Mpsc, Supervisor, TaskTotals, WorkQueue } from '@ron/kernel';
import type { Sample, Metrics } from '@ron/telemetry';
import type { Concurrency } from './declaration.ts';

export interface MeasuredQueue {
  /** Its name in metrics; queues that share one are shown added up. */
  readonly label: string;
  readonly queue: WorkQueue;
  readonly lanes: readonly string[];
}

/** A queue that the service builds itself. */
export interface OwnQueue {
  readonly depth: number;
  /** Requests answered with `busy`. Default none. */
  readonly busy_total?: number;
  /** Items refused in another way because it was full. Default none. */
  readonly rejected_total?: number;
  close(): void;
}

/** The breakers of one declared kind. */
export interface BreakerGroup {
  readonly live: Set<Breaker>;
  /** Totals of removed instances: a counter must not decrease. */
  forgotten_total: number;
}

export interface Measured {
  readonly declaration: Concurrency;
  readonly supervisor: Supervisor;
  readonly queues: ReadonlyMap<string, MeasuredQueue>;
  readonly mpscs: ReadonlyMap<string, Mpsc<never>>;
  readonly broadcasts: ReadonlyMap<string, Broadcast<never>>;
  readonly owns: ReadonlyMap<string, OwnQueue>;
  /** By declared kind. */
  readonly breakers: ReadonlyMap<string, BreakerGroup>;
}

const BREAKER_STATES: readonly BreakerState[] = ['closed', 'open', 'half_open'];

export function measureRuntime(metrics: Metrics, measured: Measured): void {
  measureQueues(metrics, measured);
  measureBusy(metrics, measured);
  measureTasks(metrics, measured.supervisor);
  if (measured.breakers.size > 0) measureBreakers(metrics, measured.breakers);
}

function measureQueues(metrics: Metrics, { queues, mpscs, broadcasts, owns }: Measured): void {
  metrics.gaugeFrom('queue_depth', 'Queued items.', ['queue'], () => [
    ...byLabel(queues, (queue) => queue.depth),
    ...samples('queue', mpscs, (mpsc) => mpsc.depth),
    ...samples('queue', owns, (own) => own.depth),
  ]);
  metrics.counterFrom('queue_dropped_total', 'Items dropped after they were accepted.', ['queue'], () => [
    ...byLabel(queues, (queue) => queue.shed_total),
    ...samples('queue', mpscs, (mpsc) => mpsc.dropped_total),
    ...samples('queue', broadcasts, (broadcast) => broadcast.lagged_total),
  ]);
  metrics.counterFrom('queue_rejected_total', 'Items refused because the queue was full.', ['queue'], () => [
    ...samples('queue', mpscs, (mpsc) => mpsc.rejected_total),
    ...[...owns].flatMap(([queue, { rejected_total: value }]) =>
      value === undefined ? [] : [{ labels: { queue }, value }],
    ),
  ]);
  metrics.counterFrom('bus_lagged_total', 'Events lost by slow subscribers.', ['topic'], () =>
    samples('topic', broadcasts, (broadcast) => broadcast.lagged_total),
  );
}

/** `queue` is the name of the queue; `endpoint` or `route`, whichever the service uses, is the lane. */
function measureBusy(metrics: Metrics, { declaration, queues, owns }: Measured): void {
  const labels = declaration.busy_labels ?? ['queue'];
  const labelled = (name: string, lane: string): Sample['labels'] =>
    Object.fromEntries(labels.map((label) => [label, label === 'queue' ? name : lane]));
  metrics.counterFrom('busy_rejections_total', 'Requests answered with busy.', labels, () =>
    added([
      ...[...queues.values()].flatMap(({ label, queue, lanes }) =>
        lanes.map((lane) => ({ labels: labelled(label, lane), value: queue.busyOf(lane) })),
      ),
      ...[...owns].flatMap(([label, { busy_total: value }]) =>
        value === undefined ? [] : [{ labels: labelled(label, label), value }],
      ),
    ]),
  );
}

/** A lane and a queue that the service builds may stand for the same route: they are shown added up. */
function added(all: readonly Sample[]): Sample[] {
  const sums = new Map<string, Sample>();
  for (const sample of all) {
    const name = JSON.stringify(sample.labels);
    const before = sums.get(name);
    sums.set(name, before === undefined ? sample : { ...sample, value: before.value + sample.value });
  }
  return [...sums.values()];
}

function measureTasks(metrics: Metrics, supervisor: Supervisor): void {
  const total = (name: string, help: string, read: (totals: TaskTotals) => number): void =>
    metrics.counterFrom(name, help, ['kind'], () =>
      supervisor.totals().map((totals) => ({ labels: { kind: totals.kind }, value: read(totals) })),
    );
  total('tasks_spawned_total', 'Tasks started, restarts included.', (totals) => totals.spawned_total);
  total('tasks_restarted_total', 'Tasks started again after a crash.', (totals) => totals.restarted_total);
  total('tasks_aborted_total', 'Tasks that outlived the drain and were aborted.', (totals) => totals.aborted_total);
  total('tasks_canceled_total', 'Tasks that ended because a stop was requested.', (totals) => totals.canceled_total);
}

/** One kind may stand for many targets, so the gauge counts breakers: with one target it is 0 or 1. */
function measureBreakers(metrics: Metrics, groups: Measured['breakers']): void {
  metrics.gaugeFrom('breaker_state', 'Breakers in each state, by kind of target.', ['target', 'state'], () =>
    [...groups].flatMap(([target, { live }]) => {
      const states = [...live].map((breaker) => breaker.state);
      return BREAKER_STATES.map((state) => ({
        labels: { target, state },
        value: states.filter((current) => current === state).length,
      }));
    }),
  );
  metrics.counterFrom('breaker_open_total', 'Calls refused by an open breaker.', ['target'], () =>
    samples('target', groups, ({ live, forgotten_total }) =>
      [...live].reduce((sum, breaker) => sum + breaker.rejected_total, forgotten_total),
    ),
  );
}

function byLabel(queues: Measured['queues'], read: (queue: WorkQueue) => number): Sample[] {
  const sums = new Map<string, number>();
  for (const { label, queue } of queues.values()) sums.set(label, (sums.get(label) ?? 0) + read(queue));
  return samples('queue', sums, (value) => value);
}

function samples<T>(label: string, table: ReadonlyMap<string, T>, read: (value: T) => number): Sample[] {
  return [...table].map(([name, value]) => ({ labels: { [label]: name }, value: read(value) }));
}
