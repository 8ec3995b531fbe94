/** The promises of TokenBucket under every schedule, checked against a bucket that is kept by hand. */
import assert from 'node:assert/strict';
import type { Build, World } from '@ron/explorer';
import { sleep } from '../sched.ts';
import type { TokenBucket } from './token-bucket.ts';

export type TokenBucketClass = typeof TokenBucket;

/** Less than any wait for tokens, so that a new rate comes while they flow. */
const TUNE_MS = 1;

interface Wish {
  readonly count: number;
  granted: boolean;
}

/**
 * A bucket by definition: level and line. A window can only get more than rate x t + burst if the level of such a
 * bucket falls below zero, so that is checked; and no caller waits that could be served.
 */
class Reference {
  readonly line: Wish[] = [];
  readonly #world: World;
  readonly #burst: number;
  #rate_per_s: number;
  #level: number;
  #at_ms = 0;
  #wrong = '';

  constructor(world: World, { burst, rate_per_s }: PacingInit) {
    this.#world = world;
    this.#burst = burst;
    this.#rate_per_s = rate_per_s;
    this.#level = burst;
  }

  /** The real bucket served a caller: it must be the first in line. */
  serve(count: number): void {
    const wish = this.line.shift();
    if (wish?.count !== count) this.#wrong ||= `${count} were taken out of turn`;
    else wish.granted = true;
    this.spend(count);
  }

  spend(count: number): void {
    this.setRate(this.#rate_per_s);
    this.#level -= count;
    if (this.#level < 0) this.#wrong ||= `exceeded: ${-this.#level} tokens too many at ${this.#at_ms} ms`;
  }

  setRate(rate_per_s: number): void {
    this.#level = this.#levelNow();
    this.#at_ms = this.#world.now_ms();
    this.#rate_per_s = rate_per_s;
  }

  leave(wish: Wish): void {
    const at = this.line.indexOf(wish);
    if (at !== -1) this.line.splice(at, 1);
  }

  check(waiters: number): void {
    assert.ok(this.#wrong === '', this.#wrong);
    assert.equal(waiters, this.line.length);
    const [first] = this.line;
    // While timers are late, tokens may lie idle until the bucket's timer fires.
    if (this.#world.isLagging()) return;
    if (first !== undefined) assert.ok(this.#levelNow() < first.count, `tokens for ${first.count} lie idle`);
  }

  #levelNow(): number {
    const flowed = ((this.#world.now_ms() - this.#at_ms) * this.#rate_per_s) / 1000;
    return Math.min(this.#burst, this.#level + flowed);
  }
}

export interface PacingInit {
  readonly burst: number;
  readonly rate_per_s: number;
  /** The tokens that each taker requests, one after the other. */
  readonly takers: readonly (readonly number[])[];
  /** The request of a taker that may be cancelled at any moment. Default: none. */
  readonly canceled?: number;
  /** Rates set one after the other. */
  readonly rates: readonly number[];
  /** Tokens requested without waiting, at any moment. Default: none. */
  readonly grab?: number;
  /** Time that passes before the takers begin. Default 0. */
  readonly idle_ms?: number;
}

/** Takers, one of them cancelled, while the rate changes. */
export function pacing(Bucket: TokenBucketClass, init: PacingInit): Build {
  return (world) => {
    const reference = new Reference(world, init);
    const { rate_per_s, burst } = init;
    const bucket = new Bucket('repair', { rate_per_s, burst, onTaken: (count) => reference.serve(count) });
    const control = new AbortController();
    const forever = new AbortController().signal;
    const canceled: Wish = { count: init.canceled ?? 0, granted: false };

    const take = async (wish: Wish, signal: AbortSignal): Promise<void> => {
      if (!signal.aborted) reference.line.push(wish);
      await bucket.take(wish.count, signal);
      assert.ok(wish.granted, 'it went on without its tokens');
    };
    for (const [index, counts] of init.takers.entries()) {
      world.task(`taker ${index}`, async () => {
        if (init.idle_ms !== undefined) await sleep(init.idle_ms, forever);
        for (const count of counts) await take({ count, granted: false }, forever);
      });
    }
    if (init.canceled !== undefined) {
      world.task('canceled', async () => {
        try {
          await take(canceled, control.signal);
        } catch (error) {
          assert.equal(error, control.signal.reason);
          assert.ok(!canceled.granted, 'it was refused and charged');
        }
      });
      world.task('cancel', async () => {
        if (!canceled.granted) reference.leave(canceled);
        control.abort(new Error('stopped'));
      });
    }
    if (init.rates.length > 0) {
      world.task('tuner', async () => {
        for (const next_per_s of init.rates) {
          await sleep(TUNE_MS, forever);
          bucket.setRate(next_per_s);
          reference.setRate(next_per_s);
        }
      });
    }
    if (init.grab !== undefined) {
      const { grab } = init;
      world.task('grabber', async () => {
        const others = reference.line.length;
        if (!bucket.tryTake(grab)) return;
        assert.equal(others, 0, 'tryTake overtook the line');
        reference.spend(grab);
      });
    }
    return {
      invariant: () => reference.check(bucket.waiters),
      final: () => assert.equal(reference.line.length, 0),
    };
  };
}
