/** Measurements that other work on the machine can only make worse. */
import assert from 'node:assert/strict';

/**
 * Measures until the bound holds, in `rounds_max` rounds at most: a defect shows in each of them, a pause of the machine in one.
 * `measure` returns the miss, or undefined. Any rejection ends the test: a wrong answer is not a matter of time.
 */
export async function holdsInARound(rounds_max: number, measure: () => Promise<string | undefined>): Promise<void> {
  const misses: string[] = [];
  while (misses.length < rounds_max) {
    const miss = await measure();
    if (miss === undefined) return;
    misses.push(miss);
  }
  assert.fail(misses.join('; '));
}
