/**
 * Random histories of a real process over directories that go and come back: every acknowledged object is readable and
 * right after any sequence of faults.
 *
 * 50 histories; RON_LONG=1 runs 1000 longer ones; RON_HISTORY=SEED runs one. A failure prints the seed and the fewest
 * operations that still fail.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { historyOf, type Extent, type History } from './histories/plan.ts';
import { describeFailure, failureOf, shrink, type Failure } from './histories/run.ts';

const IS_LONG = process.env['RON_LONG'] === '1';
const ONE = process.env['RON_HISTORY'];
/** A start takes half a second of CPU, most of the time of a short history: only every third one has one in between. */
const extentOf = (seed: number): Extent =>
  IS_LONG ? { operations: 30, restarts_max: 6 } : { operations: 8, restarts_max: seed % 3 === 0 ? 1 : 0 };
const SEEDS = ONE === undefined ? Array.from({ length: IS_LONG ? 1000 : 50 }, (_, index) => index + 1) : [Number(ONE)];
/** Histories wait for directories to be noticed more than they compute. */
const AT_ONCE = 10;
const SHRINK_MS_MAX = 45_000;
const TIMEOUT_MS = IS_LONG ? 3 * 60 * 60 * 1000 : 170_000;

/** Runs all of them, until one fails. */
async function firstFailure(): Promise<readonly [History, Failure] | undefined> {
  const seeds = SEEDS.values();
  let failed: readonly [History, Failure] | undefined;
  const work = async (): Promise<void> => {
    for (const seed of seeds) {
      if (failed !== undefined) return;
      const history = historyOf(seed, extentOf(seed));
      const failure = await failureOf(history);
      if (failure !== undefined) failed ??= [history, failure];
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return failed;
}

test(`${SEEDS.length} random histories lose nothing that was acknowledged`, { timeout: TIMEOUT_MS }, async () => {
  const failed = await firstFailure();
  if (failed === undefined) return;
  const [history, failure] = failed;
  assert.fail(describeFailure(history, await shrink(history, failure, SHRINK_MS_MAX)));
});
