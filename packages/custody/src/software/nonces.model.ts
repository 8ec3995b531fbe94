/**
 * Model of the nonce counter across crashes. The explorer decides when a reservation is durable and when the disk fails.
 *
 * A crash discards reservations that are not durable; the restarted process continues from the durable state.
 */
import assert from 'node:assert/strict';
import { isRonError } from '@ron/kernel';
import type { Build, World } from '@ron/explorer';
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

/** The durable state, the current process and the outcomes of all calls. */
class NonceHistory {
  readonly used: number[] = [];
  durable = 0;
  /** Incremented by a crash. */
  life = 0;
  failures_left: number;
  answered = 0;
  asked = 0;
  refused = 0;

  constructor(mayFail: boolean) {
    this.failures_left = mayFail ? 1 : 0;
  }

  use(nonce: Uint8Array): void {
    const number = new DataView(nonce.buffer).getUint32(8);
    // [kms I-2]
    assert.ok(!this.used.includes(number), `number ${number} was used twice`);
    assert.ok(number < this.durable, `number ${number} was used before it was reserved`);
    this.used.push(number);
  }
}

export function nonces(Tracker: TrackerClass, init: NoncesModelInit): Build {
  return (world) => {
    const { signal } = new AbortController();
    const history = new NonceHistory(init.mayFail);
    let tracker = startTracker(Tracker, init, world, history);
    const take = (name: string): void => {
      history.asked += 1;
      world.task(name, async () => {
        const mine = history.life;
        const given = await tracker.next(signal).catch((error: unknown) => error as Error);
        history.answered += 1;
        // Callers of the crashed process no longer exist.
        if (mine !== history.life) return;
        if (given instanceof Uint8Array) history.use(given);
        else if (isRonError(given, 'rotate_needed')) history.refused += 1;
      });
    };
    for (let index = 0; index < init.takers; index++) take(`taker ${index}`);
    if (init.takersAfterCrash > 0) {
      world.task('crash', async () => {
        history.life += 1;
        tracker = startTracker(Tracker, init, world, history);
        for (let index = 0; index < init.takersAfterCrash; index++) take(`later taker ${index}`);
      });
    }
    return {
      state: () => JSON.stringify([history, tracker.used]),
      final: () => {
        const { used, durable, answered, asked, refused } = history;
        assert.equal(answered, asked, 'every call is answered');
        assert.ok(used.length <= init.uses_max && durable <= init.uses_max, 'the limit holds');
        if (init.takersAfterCrash > 0 || init.mayFail) return;
        assert.equal(used.length, Math.min(init.takers, init.uses_max), 'no call is refused below the limit');
        assert.equal(refused, Math.max(0, init.takers - init.uses_max), 'every call above the limit is refused');
      },
    };
  };
}

/** Starts a process from the durable state. A reservation of a crashed process has no effect. */
function startTracker(
  Tracker: TrackerClass,
  { block, uses_max }: NoncesModelInit,
  world: World,
  history: NonceHistory,
): NonceTracker {
  const mine = history.life;
  return new Tracker({
    spent: history.durable,
    block,
    uses_max,
    reserve: async (spent) => {
      await world.io('reserve');
      if (mine !== history.life) return;
      if (history.failures_left > 0 && world.choose('reserve', ['ok', 'fails']) === 'fails') {
        history.failures_left -= 1;
        throw new Error('the disk failed');
      }
      assert.ok(spent > history.durable, 'a reservation increases');
      history.durable = spent;
    },
  });
}
