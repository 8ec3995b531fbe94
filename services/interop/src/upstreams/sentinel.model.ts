/**
 * Model of a brownout: one failed call, then the sentinel with its probes, and an operator who sets a mode at any moment.
 *
 * A brownout of an upstream that answers probes ends, but not within the dwell time after a bad probe. One of a sick or silent
 * upstream never ends. A manual mode ends at its time, even between two evaluations. The sentinel ends with its stop, even while
 * a probe hangs.
 */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import {
  Breaker,
  Brownout,
  Cell,
  Deadline,
  isRonError,
  NEVER,
  RonError,
  sched,
  touch,
  type BrownoutInit,
} from '@ron/kernel';
import type { InteropEvent } from '../events.ts';
import { AUTO, type ManualMode } from './manual-mode.ts';
import type { Sentinel } from './sentinel.ts';
import type { Upstream } from './upstream.ts';

export interface Parts {
  readonly Sentinel: typeof Sentinel;
  readonly Upstream: typeof Upstream;
  readonly ManualMode: typeof ManualMode;
}

export interface SentinelShape {
  readonly upstream: 'healthy' | 'heals' | 'sick' | 'silent';
  readonly manual: 'none' | 'on' | 'off';
}

const DWELL_MS = 1000;
const TICK_MS = 600;
const MANUAL_MS = 1500;
const PROBE_MS = 500;
/** The clock may jump once; a brownout of a healthy upstream then needs its dwell time a second time. */
const PROBES_MAX = { healthy: 4, heals: 5, sick: 2, silent: 2 } as const;
/** Longer than the explorer lets the clock jump. */
const WINDOW_MS = 1e12;

/** One failed call begins it. */
const LIMITS: BrownoutInit = {
  errors: { window_ms: WINDOW_MS, enter: 0, leave: 0, errors_min: 1 },
  latency: { window_ms: WINDOW_MS, enter_ms: 500, leave_ms: 400, calls_min: 20, quantile: 0.95 },
  dwell_ms: DWELL_MS,
};
const BREAKER = { error_window_ms: WINDOW_MS, trip_threshold: 0.5, calls_min: 9, cooldown_ms: 1, half_open_probes: 1 };

const away = (): RonError => new RonError('unreachable', 'storage is away');

export function sentinelModel({ Sentinel, Upstream, ManualMode }: Parts, shape: SentinelShape): Build {
  return (world) => {
    const manual = new ManualMode(new Cell('policy_meta', 1, { brownout: AUTO }));
    const storage = new Upstream({
      name: 'storage',
      breaker: new Breaker('storage', BREAKER),
      brownout: { state: new Brownout(LIMITS), limits: LIMITS, manual },
      slow_ms: PROBE_MS,
    });
    const idle = (name: 'mailbox' | 'passport') => ({
      upstream: new Upstream({ name, breaker: new Breaker(name, BREAKER), slow_ms: PROBE_MS }),
      probe: undefined,
    });
    const stop = new AbortController();
    const seen = { began: 0, ended: 0, probes: 0, bad_ms: -Infinity, mode_ends_ms: Infinity };
    const probe = probeOf(shape, { seen, stop });
    const publish = ({ kind }: InteropEvent): void => {
      touch(seen);
      if (kind === 'brownout began') seen.began += 1;
      if (kind !== 'brownout ended') return;
      seen.ended += 1;
      assert.ok(seen.probes > 0, 'it ended without a sample');
      assert.ok(sched.now_ms() - seen.bad_ms >= DWELL_MS, 'it ended in spite of a bad probe');
      stop.abort();
    };
    const sentinel = new Sentinel({
      upstreams: { storage: { upstream: storage, probe }, mailbox: idle('mailbox'), passport: idle('passport') },
      manual,
      tick_ms: TICK_MS,
      probing: (signal) => Deadline.after('probe', PROBE_MS, { signal }),
      events: { publish },
    });
    // Not a task: it could be put off as long as the sentinel ticks.
    storage.begin('put').fail(away());
    world.task('sentinel', () => sentinel.run({ signal: NEVER, stopping: stop.signal }));
    if (shape.manual !== 'none') {
      const mode = shape.manual;
      world.task('operator', async () => {
        await world.io('request');
        const until_ms = sched.wall_ms() + MANUAL_MS;
        try {
          manual.set({ mode, until_ms });
        } catch (error) {
          // The clock jumped beyond the end.
          return assert.ok(isRonError(error, 'validation'), String(error));
        }
        touch(seen);
        seen.mode_ends_ms = until_ms;
      });
    }
    const answers = shape.upstream === 'healthy' || shape.upstream === 'heals';
    return {
      invariant: () => {
        if (sched.wall_ms() >= seen.mode_ends_ms) assert.equal(manual.mode, 'auto', 'a manual mode outlives its time');
        if (manual.mode === 'off') assert.equal(storage.sheds, false, 'the mode off sheds');
        if (manual.mode === 'on') assert.equal(storage.sheds, true, 'the mode on does not shed');
      },
      final: () => {
        assert.equal(seen.began, 1, 'it begins once');
        assert.equal(seen.ended, answers ? 1 : 0, 'it ends exactly if the upstream is healthy');
        assert.equal(storage.isInBreach, !answers);
      },
    };
  };
}

interface Seen {
  readonly seen: { probes: number; bad_ms: number };
  readonly stop: AbortController;
}

/** Answers at once: the explorer would otherwise also let each probe pass its deadline. */
function probeOf({ upstream }: SentinelShape, { seen, stop }: Seen): () => Promise<void> {
  const isBad = (): boolean => upstream === 'sick' || (upstream === 'heals' && seen.probes === 1);
  return async () => {
    touch(seen);
    seen.probes += 1;
    if (seen.probes >= PROBES_MAX[upstream]) stop.abort();
    if (upstream === 'silent') return await new Promise(() => undefined);
    if (!isBad()) return;
    touch(seen);
    seen.bad_ms = sched.now_ms();
    throw away();
  };
}
