/**
 * Model of the nonce counter across crashes. The explorer decides when a reservation is durable and when the disk fails.
 *
 * A crash discards reservations that are not durable; the restarted process continues from the durable state.
 */
import assert from 'node:assert/strict';
import { isRonError } from '@ron/kernel';
import type { Build } from '@ron/explorer';
import type { NonceTracker, NonceTrackerInit } from './nonces.ts';

export type TrackerClass = new (init: NonceTrackerInit) => NonceTracker;

export interface NoncesModelInit {
  /** Concurrent callers, before and after the crash. */
  takers: number;
  takersAfterCrash: number;
  mayFail: boolean;
  block: number;
  uses_max: number;
}

export function nonces(Tracker: TrackerClass, init: NoncesModelInit): Build {
  return (world) => {
    const { signal } = new AbortController();
    const used: number[] = [];
    let durable = 0;
    let life = 0;
    let failures_left = init.mayFail ? 1 : 0;
    let answered = 0;
    let asked = 0;
    let refused = 0;
    const start = (): NonceTracker => {
      const mine = life;
      return new Tracker({
        spent: durable,
        block: init.block,
        uses_max: init.uses_max,
        reserve: async (spent) => {
          await world.io('reserve');
          if (mine !== life) return;
          if (failures_left > 0 && world.choose('reserve', ['ok', 'fails']) === 'fails') {
            failures_left -= 1;
            throw new Error('the disk failed');
          }
          assert.ok(spent > durable, 'a reservation increases');
          durable = spent;
        },
      });
    };
    let tracker = start();
    const take = (name: string): void => {
      asked += 1;
      world.task(name, async () => {
        const mine = life;
        const given = await tracker.next(signal).catch((error: unknown) => error as Error);
        answered += 1;
        // Callers of the crashed process no longer exist.
        if (mine !== life) return;
        if (given instanceof Uint8Array) use(given);
        else if (isRonError(given, 'rotate_needed')) refused += 1;
      });
    };
    const use = (nonce: Uint8Array): void => {
      const number = new DataView(nonce.buffer).getUint32(8);
      // [kms I-2]
      assert.ok(!used.includes(number), `number ${number} was used twice`);
      assert.ok(number < durable, `number ${number} was used before it was reserved`);
      used.push(number);
    };
    for (let index = 0; index < init.takers; index++) take(`taker ${index}`);
    if (init.takersAfterCrash > 0) {
      world.task('crash', async () => {
        life += 1;
        tracker = start();
        for (let index = 0; index < init.takersAfterCrash; index++) take(`later taker ${index}`);
      });
    }
    return {
      state: () => JSON.stringify([used, durable, life, failures_left, answered, asked, refused, tracker.used]),
      final: () => {
        assert.equal(answered, asked, 'every call is answered');
        assert.ok(used.length <= init.uses_max && durable <= init.uses_max, 'the limit holds');
        if (init.takersAfterCrash > 0 || init.mayFail) return;
        assert.equal(used.length, Math.min(init.takers, init.uses_max), 'no call is refused below the limit');
        assert.equal(refused, Math.max(0, init.takers - init.uses_max), 'every call above the limit is refused');
      },
    };
  };
}
