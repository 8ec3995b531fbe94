/**
 * Model of a config swap, on the real follower and watch: reloads while requests use the configuration, and a stop at any
 * moment.
 *
 * A request finds one whole configuration, the old or the new one. Configurations are applied one at a time and never go
 * back. Once the follower is idle, the newest is in force, unless a stop came first: then nothing is applied any more.
 */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import { isRonError, NEVER, touch, Watch } from '@ron/kernel';
import type { ConfigFollower } from './config-follower.ts';

/** Two values that belong together: they are equal in every published configuration. */
interface Config {
  readonly alpha: number;
  readonly beta: number;
}

export interface SwapInit {
  readonly reloads: number;
  readonly requests: number;
  readonly stops: boolean;
}

export function configSwap(Follower: typeof ConfigFollower, init: SwapInit): Build {
  return (world) => {
    const watch = new Watch<Config>('source', { alpha: 0, beta: 0 });
    const source = {
      watch,
      get value() {
        return watch.value;
      },
    };
    const config = new Watch<Config>('cfg_watch', watch.value);
    const shutdown = new Watch('shutdown', false);
    const stopping = new AbortController();
    const seen = { applied: 0, active: 0, used: '', stopped_at: Infinity };
    const follower = new Follower<Config>({
      source,
      config,
      shutdown,
      onProblem: (error) => assert.fail(String(error)),
      apply: async (next) => {
        touch(seen);
        assert.equal((seen.active += 1), 1, 'applied by one run at a time');
        assert.ok(next.alpha >= seen.applied, 'an older configuration is applied again');
        assert.ok(next.alpha <= seen.stopped_at, 'applied after the stop');
        await world.io('apply');
        touch(seen);
        seen.applied = next.alpha;
        seen.active -= 1;
      },
    });
    world.task('config_reloader', () => follower.run(stopping.signal).catch(() => undefined));
    for (let at = 0; at < init.requests; at += 1) {
      world.task(`request ${at}`, async () => {
        const snapshot = config.value;
        const { alpha } = snapshot;
        await world.io('lookup');
        touch(seen);
        // [index I-1] [index I-5]
        assert.equal(snapshot.beta, alpha, 'the configuration changed while it was in use');
        assert.ok(config.value.alpha >= alpha, 'an old configuration came back');
        seen.used += `${alpha},`;
      });
    }
    world.task('operator', async () => {
      for (let value = 1; value <= init.reloads; value += 1) {
        await world.io('read file');
        watch.set({ alpha: value, beta: value });
      }
      try {
        await follower.reload(NEVER);
        touch(seen);
        assert.deepEqual(
          [config.value.alpha, seen.applied],
          [init.reloads, init.reloads],
          'a reload ends when it is applied',
        );
      } catch (error) {
        assert.ok(isRonError(error, 'draining') && shutdown.value, String(error));
      }
      if (!init.stops) stopping.abort();
    });
    if (init.stops) {
      world.task('stop', async () => {
        touch(seen);
        shutdown.set(true);
        seen.stopped_at = config.value.alpha;
        stopping.abort();
      });
    }
    return {
      state: () => JSON.stringify([seen, config.value, watch.value, shutdown.value]),
      final: () => {
        assert.equal(seen.active, 0, 'every run has ended');
        assert.ok(config.value.alpha <= watch.value.alpha);
      },
    };
  };
}
