/** `ron queue replay` and `delete` reach every selected dead letter, even if mailbox applies a call to a few of them only. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inSteps } from './dead-letters.ts';

/** A mailbox with the dead letters 1 to `count`, of which one call takes `share` at most. */
function mailboxOf(count: number, share: number) {
  const dead = new Set(Array.from({ length: count }, (_, at) => at + 1));
  const calls: number[] = [];
  const step = async ({ seqs, limit }: { seqs?: readonly number[]; limit?: number }) => {
    calls.push(seqs?.length ?? limit!);
    const taken = (seqs ?? [...dead]).filter((seq) => dead.has(seq)).slice(0, Math.min(limit ?? Infinity, share));
    for (const seq of taken) dead.delete(seq);
    return { done: taken.length, left: dead.size };
  };
  return { dead, calls, step };
}

const doneIn = async (steps: AsyncIterable<{ done: number }>): Promise<number> => {
  let done = 0;
  for await (const step of steps) done += step.done;
  return done;
};

for (const share of [7, 128, 1000]) {
  test(`the oldest ones, ${share} at a time, and no more than that`, async () => {
    const { dead, calls, step } = mailboxOf(300, share);
    assert.equal(await doneIn(inSteps(290, undefined, step)), 290);
    assert.equal(dead.size, 10);
    assert.ok(calls.every((limit) => limit <= 128));
  });

  test(`those of a list, ${share} at a time, without the unknown ones`, async () => {
    const { dead, step } = mailboxOf(300, share);
    const seqs = Array.from({ length: 280 }, (_, at) => at * 2 + 1);
    assert.equal(await doneIn(inSteps(seqs.length, seqs, step)), 150);
    assert.deepEqual([...dead].slice(0, 3), [2, 4, 6]);
  });
}

test('dead letters that cannot be replayed do not keep it busy', async () => {
  const { calls, step } = mailboxOf(300, 0);
  assert.equal(await doneIn(inSteps(300, undefined, step)), 0);
  assert.equal(calls.length, 1);
  assert.equal(
    await doneIn(
      inSteps(
        300,
        Array.from({ length: 300 }, (_, at) => at),
        step,
      ),
    ),
    0,
  );
  assert.equal(calls.length, 4);
});
