/** Hedge under every schedule. The model takes the class, so that a mutant can replace it. */
import assert from 'node:assert/strict';
import type { Build } from '@ron/explorer';
import { isRonError } from '../errors.ts';
import { RetryBudget } from '../retry/retry-budget.ts';
import { idempotent } from '../retry/retry.ts';
import type { Hedge } from './hedge.ts';

const DELAY_MS = 100;
/** Longer than the explorer lets the clock jump, so that the budget is not renewed. */
const WINDOW_MS = 1e12;

export interface HedgeModelInit {
  attempts_max: number;
  /** Attempts beyond the first that the budget allows. */
  budget: number;
  /** Whether the caller may abort at any moment. */
  leaves?: boolean;
  closes?: boolean;
}

interface Attempt {
  readonly signal: AbortSignal;
  result: 'running' | 'good' | 'bad';
}

/** One call whose attempts end well or badly at any moment, and ignore their abort. */
export function hedgeModel(Class: typeof Hedge, init: HedgeModelInit): Build {
  return (world) => {
    const budget = new RetryBudget({ ratio: 0, floor: init.budget, window_ms: WINDOW_MS });
    const hedge = new Class({ delay_ms: DELAY_MS, attempts_max: init.attempts_max, budget, inflight_max: 8 });
    const leaving = new AbortController();
    const attempts: Attempt[] = [];
    let wrong = '';
    let answer: string | undefined;
    const read = idempotent('read', async (signal, index) => {
      if (answer !== undefined || leaving.signal.aborted) wrong ||= 'an attempt began after the answer';
      if (world.now_ms() < index * DELAY_MS) wrong ||= 'an attempt began before its delay';
      const attempt: Attempt = { signal, result: 'running' };
      attempts.push(attempt);
      const result = world.choose('result', ['good', 'bad'] as const);
      await world.io(`attempt ${index}`);
      attempt.result = result;
      if (result === 'bad') throw new Error(`bad ${index}`);
      return `good ${index}`;
    });
    world.task('caller', async () => {
      answer = await hedge.run(read, leaving.signal).catch((error: unknown) => {
        if (error === leaving.signal.reason) return 'left';
        return isRonError(error, 'closed') ? 'closed' : (error as Error).message;
      });
      const [kind, index] = answer.split(' ');
      if (kind === 'good') assert.equal(attempts[Number(index)]?.result, 'good');
      if (kind === 'bad')
        assert.ok(!attempts.some(({ result }) => result !== 'bad'), 'failed while an attempt could win');
      for (const { result, signal } of attempts) {
        assert.ok(result !== 'running' || signal.aborted, 'a loser was not aborted');
      }
    });
    if (init.leaves === true) world.task('leaver', async () => leaving.abort(new Error('gone')));
    if (init.closes === true) {
      world.task('closer', async () => {
        await hedge.close();
        assert.equal(attempts.filter(({ result }) => result === 'running').length, 0, 'closed while an attempt runs');
      });
    }
    return {
      invariant: () => {
        assert.equal(wrong, '');
        assert.ok(attempts.length <= init.attempts_max, 'too many attempts');
        assert.ok(attempts.length <= 1 + init.budget, 'the budget was exceeded');
      },
      final: () => {
        assert.notEqual(answer, undefined, 'no answer');
        const running = attempts.filter(({ result }) => result === 'running').length;
        assert.equal(hedge.inflight, running, 'an attempt is not tracked');
      },
    };
  };
}
