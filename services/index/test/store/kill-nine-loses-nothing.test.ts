/** A database whose process is killed at any moment has every acknowledged change, and no half of one. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { test } from 'node:test';
import { tempDir } from '@ron/testkit';
import { addressOf, KEY, openStore, position } from './support.ts';

const CHILD = fileURLToPath(new URL('./writing-child.ts', import.meta.url));
const ROUNDS = 3;

test('kill -9 during writes loses nothing that was acknowledged', { timeout: 120_000 }, async () => {
  await using temp = await tempDir();
  let epoch: string | undefined;
  for (let round = 0; round < ROUNDS; round++) {
    const last = await killedAfter(temp.path, 5 + 7 * round);
    await using store = await openStore(temp.path);
    epoch ??= store.epoch;
    assert.equal(store.epoch, epoch);
    const { size } = store.applied;
    assert.ok(size > last, `${size} applied, ${last} acknowledged`);
    assert.deepEqual(store.applied, position(size), 'the position and its hash are one');
    for (let at = Math.max(0, size - 7); at < size; at++) {
      assert.equal((await store.highestSeq(KEY, `n${at % 7}`))?.seq, at + 1, 'the data is not behind the position');
    }
    assert.notEqual(await store.object(addressOf(`o${last} 19`)), undefined);
    assert.equal((await store.countObjects()) % 20, 0, 'announcements are whole');
  }
});

/** Runs the child until it has acknowledged `steps` steps, kills it, and returns the last step. */
async function killedAfter(dir: string, steps: number): Promise<number> {
  const child = spawn(process.execPath, [CHILD, dir], { stdio: ['ignore', 'pipe', 'inherit'] });
  const exit = once(child, 'exit');
  let last = -1;
  let count = 0;
  for await (const line of createInterface({ input: child.stdout })) {
    last = Number(line);
    count += 1;
    if (count === steps) child.kill('SIGKILL');
  }
  await exit;
  assert.ok(count >= steps);
  return last;
}
