/** A config swap under every schedule. The model takes the classes, so that a broken one can be put in its place. */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import type { Snapshot } from './snapshot.ts';
import type { Watch } from './watch.ts';

/** Two values that belong together: they are equal in every config that was ever swapped in. */
interface Config {
  rate: number;
  burst: number;
}

export interface ConfigSwapInit {
  readonly swaps: number;
  readonly readers: number;
}

/**
 * A reload that swaps the config in and then notifies; readers that use a config across a wait and must find it whole; a
 * follower that must find at least the version it was notified of.
 */
export function configSwap(SnapshotClass: typeof Snapshot, WatchClass: typeof Watch, init: ConfigSwapInit): Build {
  return (world) => {
    const current = new SnapshotClass<Config>('config', { rate: 0, burst: 0 });
    const reloads = new WatchClass('reloads', 0);
    const used: string[] = [];
    let followed = 0;

    for (let reader = 0; reader < init.readers; reader += 1) {
      world.task(`reader ${reader}`, async () => {
        const config = current.load();
        const { rate } = config;
        await world.io('request');
        // [storage I-1] [kms I-1] [index I-1] [edge I-1] [interop I-1]
        assert.equal(config.burst, rate, 'the config changed while it was in use');
        used[reader] = `${rate} then ${current.load().rate}`;
        assert.ok(current.load().rate >= rate, 'an old config came back');
      });
    }
    const receiver = reloads.subscribe();
    world.task('follower', async () => {
      while (followed < init.swaps) {
        const version = await receiver.changed(new AbortController().signal);
        const { rate, burst } = current.load();
        assert.equal(rate, burst);
        assert.ok(rate >= version, `notified of ${version}, found ${rate}`);
        followed = rate;
        await world.io('apply');
      }
    });
    world.task('reload', async () => {
      for (let value = 1; value <= init.swaps; value += 1) {
        await world.io('read file');
        const old = current.swap({ rate: value, burst: value });
        assert.equal(old.rate, value - 1);
        await world.io('log');
        reloads.set(current.version);
      }
    });
    return {
      state: () => [used, followed, current.version, JSON.stringify(current.load()), reloads.value].join(';'),
      final: () => assert.equal(current.version, init.swaps),
    };
  };
}
