import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { test } from 'node:test';
import { eventually, tempDir } from '@ron/testkit';
import { openStore } from '../store/support.ts';
import { newSweep, OBJECTS } from './sweep.ts';

const CHILD = fileURLToPath(new URL('./sweep.ts', import.meta.url));
/** The start time and the state of a sweep, before the position. */
const HEAD_BYTES = 9;

test('a sweep that was killed continues after the last batch that it saved', { timeout: 60_000 }, async () => {
  await using temp = await tempDir();
  const saved = await killedInSweep(temp.path);
  await using store = await openStore(temp.path);
  const objects = await store.objects(undefined, OBJECTS);
  assert.equal(objects.length, OBJECTS);
  const next = objects.findIndex(({ routing_key }) => Buffer.compare(routing_key, saved) > 0);
  assert.ok(next > 0 && next < OBJECTS, `${next} objects were swept before the kill`);

  let isDone = false;
  const { providing, isProvided } = newSweep(store, (cursor) => (isDone = cursor[HEAD_BYTES - 1] === 1));
  const stopping = new AbortController();
  const running = providing.run(stopping.signal);
  await eventually('the sweep ends', () => isDone);
  stopping.abort();
  await running;
  const swept = objects.map(({ address }) => isProvided(address));
  assert.ok(swept.slice(OBJECTS - 256).every(Boolean), 'the last batch is provided');
  // The kill can come after a further batch was saved, so only the batches before are certain.
  assert.ok(!swept.slice(0, next).some(Boolean), 'the batches before the kill are not provided again');
  const first = swept.indexOf(true);
  assert.ok(swept.slice(first).every(Boolean) && (first - next) % 256 === 0, 'no object between is left out');
});

/** Kills a child in its sweep, and returns the last position that it reported. */
async function killedInSweep(dir: string): Promise<Uint8Array> {
  const child = spawn(process.execPath, [CHILD, dir], { stdio: ['pipe', 'pipe', 'inherit'] });
  const exit = once(child, 'exit');
  let saved: Uint8Array | undefined;
  for await (const line of createInterface({ input: child.stdout })) {
    const cursor = Buffer.from(line, 'hex');
    if (cursor.length === HEAD_BYTES) continue;
    saved = cursor.subarray(HEAD_BYTES);
    child.kill('SIGKILL');
  }
  await exit;
  assert.ok(saved !== undefined, 'the child saved no position');
  return saved;
}
