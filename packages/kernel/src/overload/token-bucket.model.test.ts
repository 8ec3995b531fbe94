import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { pacing, type PacingInit, type TokenBucketClass } from './token-bucket.model.ts';
import { TokenBucket } from './token-bucket.ts';

const SIZES: Record<string, PacingInit> = {
  'two takers, a faster rate and a cancel': {
    burst: 2,
    rate_per_s: 500,
    takers: [[2], [2]],
    canceled: 2,
    rates: [1000],
  },
  'two takers, the flow stops and goes on': { burst: 2, rate_per_s: 500, takers: [[2, 1], [2]], rates: [0, 1000] },
  'two takers, a cancel and a grabber': {
    burst: 2,
    rate_per_s: 500,
    takers: [[2], [1]],
    canceled: 2,
    rates: [],
    grab: 1,
  },
  'two takers after a pause': { burst: 2, rate_per_s: 500, takers: [[2, 2], [1]], rates: [], idle_ms: 100 },
};

for (const [name, init] of Object.entries(SIZES)) {
  test(`pacing is never exceeded and every caller is served: ${name}`, async (t) => {
    const { schedules, steps } = await assertHolds(pacing(TokenBucket, init), { name });
    t.diagnostic(`${schedules} schedules, ${steps} steps`);
  });
}

const MUTANTS: Record<string, { find: string; replace: string; size: string; caught: RegExp }> = {
  'a new rate counts for the past too': {
    find: 'this.#spend(0, now_ms);',
    replace: '',
    size: 'two takers, a faster rate and a cancel',
    caught: /invariant: exceeded/,
  },
  'time is counted twice': {
    find: 'this.#at_ms = now_ms;',
    replace: '',
    size: 'two takers after a pause',
    caught: /invariant: exceeded/,
  },
  'the bucket has no bottom': {
    find: 'Math.min(this.#full, this.#level + flowed)',
    replace: 'this.#level + flowed',
    size: 'two takers after a pause',
    caught: /invariant: exceeded/,
  },
  'no waiter moves up after a cancel': {
    find: 'if (wasFirst) this.#serve(sched.now_ms());',
    replace: '',
    size: 'two takers, a cancel and a grabber',
    caught: /lie idle|deadlock/,
  },
  'a cancelled wish is charged': {
    find: 'this.#leave(waiter).fail(reason);',
    replace: 'this.#leave(waiter).fail(reason);\n    this.#level -= waiter.need;',
    size: 'two takers, a faster rate and a cancel',
    caught: /lie idle/,
  },
  'the timer is not set again': {
    find: 'if (first === undefined || this.#rate_per_s === 0) return;',
    replace: 'if (first === undefined || this.#line.length < 2) return;',
    size: 'two takers, a faster rate and a cancel',
    caught: /deadlock/,
  },
  'a new rate does not wake the line': {
    find: 'this.#rate_per_s = next_per_s;\n    this.#serve(now_ms);',
    replace: 'this.#rate_per_s = next_per_s;',
    size: 'two takers, the flow stops and goes on',
    caught: /lie idle|deadlock|livelock/,
  },
  'who does not wait overtakes': {
    find: 'if (this.#closed || this.#line.length > 0) return false;',
    replace: 'if (this.#closed) return false;',
    size: 'two takers, a cancel and a grabber',
    caught: /overtook/,
  },
};

for (const [name, { find, replace, size, caught }] of Object.entries(MUTANTS)) {
  test(`the model catches: ${name}`, async () => {
    const url = new URL('./token-bucket.ts', import.meta.url).href;
    const broken = await mutant<{ TokenBucket: TokenBucketClass }>(url, find, replace);
    await assertCaught(pacing(broken.TokenBucket, SIZES[size]!), { name }, caught);
  });
}
