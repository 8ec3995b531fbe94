/** Restarts, kills and one-shots against a stop, under every schedule. */
import type { Build, World } from '@ron/explorer';
import { assert } from '../errors.ts';
import { sched } from '../sched.ts';
import type { StopReport, Supervisor, TaskContext } from './supervisor.ts';

/** The code under test: the module itself, or a mutant of it. */
export interface SupervisorModule {
  readonly Supervisor: typeof Supervisor;
}

const DRAIN_MS = 1000;

/** The tasks as a model sees them: how many run, and that none starts too late. */
class Watcher {
  live = 0;
  stopBegan = false;
  /** Remembered, because an assertion that fails in a supervised task is a crash like any other. */
  startedLate = false;
  report: StopReport | undefined;

  async during(work: () => Promise<void>): Promise<void> {
    this.startedLate ||= this.stopBegan;
    this.live += 1;
    try {
      await work();
    } finally {
      this.live -= 1;
    }
  }

  /** The supervisor's part of the state; the states of its tasks follow from their histories. */
  state(supervisor: Supervisor): string {
    const { live, stopBegan, startedLate, report } = this;
    return JSON.stringify([supervisor.totals(), supervisor.health(), live, stopBegan, startedLate, report]);
  }

  async stop(supervisor: Supervisor): Promise<void> {
    this.stopBegan = true;
    this.report = await supervisor.stop({ drain_ms: DRAIN_MS });
    const { aborted, stuck } = this.report;
    // Time may pass faster than any task runs, so also one that would obey can be late. But then it is reported.
    assert(!this.startedLate, 'a task started after the stop began');
    assert(this.live <= stuck, 'a task is alive after the stop and was not reported');
    assert(stuck <= aborted, 'only aborted tasks can be stuck');
    if (stuck > 0) return;
    for (const { kind, state } of supervisor.health()) {
      assert(state === 'stopped' || state === 'failed', `${kind} is ${state} after the stop`);
    }
  }
}

export type Behaviour = 'crashes' | 'obeys the stop' | 'obeys the abort';

/**
 * Critical tasks that may crash at any time, and a stop at any time. All crashes are in one window, however late timers
 * fire: `supervisor.test.ts` checks on a virtual clock which crashes are.
 */
export function restartAgainstShutdown(
  { Supervisor }: SupervisorModule,
  count: number,
  behaviours: readonly Behaviour[],
): Build {
  return (world) => {
    const supervisor = new Supervisor({ restarts_max: 1, window_ms: Infinity });
    const watcher = new Watcher();
    let starts = 0;
    supervisor.spawn('worker', { criticality: 'critical', count }, (ctx) =>
      watcher.during(() => {
        starts += 1;
        return behave(world, ctx, behaviours);
      }),
    );
    world.task('stopper', () => watcher.stop(supervisor));
    return {
      state: () => watcher.state(supervisor),
      final() {
        const [totals] = supervisor.totals();
        assert(watcher.report !== undefined && !watcher.startedLate, 'the stop resolved, and nothing started');
        assert(starts <= 2 * count, 'restarts are limited');
        assert(totals?.live === 0 && totals.aborted_total === watcher.report.aborted, 'aborts are counted once');
        assert(supervisor.fatal === undefined || totals.crashed_total >= 2, 'one crash is not fatal');
        assert(supervisor.fatal !== undefined || totals.crashed_total <= count, 'two crashes of one task are fatal');
      },
    };
  };
}

/** A worker is killed at any time; it obeys the stop, or only the abort. */
export function killAgainstShutdown({ Supervisor }: SupervisorModule): Build {
  return (world) => {
    const supervisor = new Supervisor({ restarts_max: 1 });
    const watcher = new Watcher();
    supervisor.spawn('worker', { criticality: 'important' }, (ctx) =>
      watcher.during(() => untilAborted(world.choose('obeys', [ctx.stopping, ctx.signal]), ctx.signal)),
    );
    world.task('killer', () => {
      supervisor.kill('worker');
      return Promise.resolve();
    });
    world.task('stopper', () => watcher.stop(supervisor));
    return {
      state: () => watcher.state(supervisor),
      final() {
        const [totals] = supervisor.totals();
        assert(watcher.report !== undefined && !watcher.startedLate, 'the stop resolved, and nothing started');
        assert(supervisor.health()[0]!.state === 'stopped' && totals!.crashed_total <= 1, 'a kill is one crash');
        assert(totals!.restarted_total <= totals!.crashed_total, 'only a crash restarts');
      },
    };
  };
}

/** Work in hand runs another one-shot while draining: it is not cut off before the drain ends. */
export function oneShotsWhileDraining({ Supervisor }: SupervisorModule): Build {
  return (world) => {
    const supervisor = new Supervisor();
    const watcher = new Watcher();
    const counted = async (): Promise<void> => {
      watcher.live += 1;
      await world.io('work');
      watcher.live -= 1;
    };
    let refused = 0;
    for (const name of ['first', 'second']) {
      world.task(name, () =>
        supervisor.run('request', counted).catch(() => {
          assert(watcher.stopBegan, 'refused only when stopping');
          refused += 1;
        }),
      );
    }
    world.task('stopper', async () => {
      await watcher.stop(supervisor);
      if (watcher.report!.aborted > 0) assert(world.now_ms() >= DRAIN_MS, 'aborted before the drain was over');
    });
    return {
      state: () => `${watcher.state(supervisor)} ${refused}`,
      final() {
        const totals = supervisor.totals().find(({ kind }) => kind === 'request');
        assert((totals?.spawned_total ?? 0) + refused === 2, 'each request ran or was refused');
        // [storage I-8] [kms I-8] [index I-8] [edge I-8] [interop I-8]
        assert(supervisor.live === 0, 'nothing is left');
      },
    };
  };
}

async function behave(world: World, ctx: TaskContext, behaviours: readonly Behaviour[]): Promise<void> {
  const behaviour = world.choose('worker', behaviours);
  if (behaviour === 'obeys the stop') return untilAborted(ctx.stopping, ctx.signal);
  if (behaviour === 'obeys the abort') return untilAborted(ctx.signal, ctx.signal);
  await world.io('work');
  throw new Error('boom');
}

/** Resolves when one of the signals aborts. */
function untilAborted(first: AbortSignal, second: AbortSignal): Promise<void> {
  if (first.aborted || second.aborted) return Promise.resolve();
  const parked = sched.park<void>('until aborted');
  for (const signal of [first, second]) signal.addEventListener('abort', () => parked.wake(), { once: true });
  return parked.promise;
}
