/** [index I-7] Threads of the database that hang or crash: the event loop goes on, and nothing acknowledged is lost. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { open, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { isRonError } from '@ron/kernel';
import { eventually, tempDir } from '@ron/testkit';
import { addressOf, KEY, NOW_MS, openStore, position, published } from './support.ts';

const module = new URL('./faulty-thread.ts', import.meta.url);
const isTimeout = (error: unknown): boolean => isRonError(error, 'timeout');

for (const when of ['before', 'after'] as const) {
  test(`a writer that crashes ${when} its commit is replaced, and the call succeeds`, async () => {
    await using temp = await tempDir();
    await using store = await openStore(temp.path, { module });
    const { epoch } = store;
    await store.apply([published('a', 1)], position(1));
    await writeFile(join(temp.path, `crash-${when}`), '');
    await store.apply([published('a', 2)], position(2));
    assert.deepEqual(store.applied, position(2));
    const name = await store.name(KEY, 'a');
    assert.equal(name?.seq, 2);
    assert.equal((await store.history(KEY, 'a', 9)).length, 1, 'applied once');
    assert.equal(store.epoch, epoch);
    assert.equal(store.problem, undefined);
    await assert.rejects(openStore(temp.path), (error) => isRonError(error, 'conflict'), 'it holds the lock again');
  });
}

test('a reader that crashes is replaced', async () => {
  await using temp = await tempDir();
  await using store = await openStore(temp.path, { module });
  await store.apply([published('a', 1)], position(1));
  await writeFile(join(temp.path, 'crash-before'), '');
  assert.equal((await store.name(KEY, 'a'))?.seq, 1);
});

/** A writer lets every thread pass that waits for one; without the pipe no further one waits. */
async function release(pipe: string): Promise<void> {
  await using _ = await open(pipe, 'r+');
  await rm(pipe);
}

test('[index I-7] while the disk hangs, calls end at their deadline, then at once; afterwards everything works', async () => {
  await using temp = await tempDir();
  const pipe = join(temp.path, 'hang');
  await using store = await openStore(temp.path, { module, call_ms: 1000 });
  await store.apply([published('a', 1)], position(1));
  execFileSync('mkfifo', [pipe]);
  const begun_ms = performance.now();
  const pending = [
    store.apply([published('a', 2)], position(2)),
    store.name(KEY, 'a'),
    store.name(KEY, 'a'),
    ...Array.from({ length: 20 }, () => store.name(KEY, 'a')),
  ];
  const turns = { count: 0 };
  const ticking = setInterval(() => (turns.count += 1), 10);
  const outcomes = await Promise.allSettled(pending);
  clearInterval(ticking);
  const took_ms = performance.now() - begun_ms;
  for (const outcome of outcomes) assert.ok(outcome.status === 'rejected' && isTimeout(outcome.reason));
  assert.ok(took_ms >= 990, `${took_ms} ms`);
  assert.ok(turns.count >= 5, 'the event loop turns');
  await eventually('the gate closes', () => store.problem !== undefined);
  await assert.rejects(store.name(KEY, 'a'), isTimeout);
  await assert.rejects(store.announce('s', [], [addressOf('x')], NOW_MS), isTimeout);
  assert.equal(store.depth, 0, 'nothing waits behind the hung disk');
  await release(pipe);
  await eventually('the gate opens', () => store.problem === undefined);
  assert.deepEqual(store.applied, position(2), 'the write of the hung thread took effect late');
  await store.apply([published('a', 2)], position(2));
  assert.equal((await store.name(KEY, 'a'))?.seq, 2);
});

test('one hung reader does not stop the other one', async () => {
  await using temp = await tempDir();
  const pipe = join(temp.path, 'hang');
  await using store = await openStore(temp.path, { module, call_ms: 1000 });
  execFileSync('mkfifo', [pipe]);
  const hung = store.name(KEY, 'a');
  await assert.rejects(hung, isTimeout);
  await rename(pipe, `${pipe}-aside`);
  assert.equal(await store.name(KEY, 'a'), undefined);
  assert.equal(store.problem, 'the index database does not answer', 'the gate stays closed meanwhile');
  await release(`${pipe}-aside`);
  await eventually('the gate opens', () => store.problem === undefined);
});

test('[index I-9] a full queue refuses at once', async () => {
  await using temp = await tempDir();
  const pipe = join(temp.path, 'hang');
  await using store = await openStore(temp.path, { module });
  execFileSync('mkfifo', [pipe]);
  const calls = Array.from({ length: 2000 }, () => store.countObjects().catch((error: unknown) => error));
  const outcomes = Promise.all(calls);
  await assert.rejects(store.countObjects(), (error) => isRonError(error, 'busy'));
  await release(pipe);
  const refused = (await outcomes).filter((outcome) => isRonError(outcome, 'busy'));
  assert.ok(refused.length > 500 && refused.length < 1500, `${refused.length} of 2000 refused`);
});

test('a database in memory is empty after its thread crashed: the gate closes until the log was applied again', async () => {
  let rebuilt = 0;
  await using store = await openStore(undefined, { module, onRebuilt: () => (rebuilt += 1) });
  await store.apply([published('a', 1), published('b', 1)], position(2));
  const { epoch } = store;
  await store.saveCursor('crash', Uint8Array.of(1)).catch(() => undefined);
  await eventually('the loss is noticed', () => rebuilt === 1);
  assert.notEqual(store.epoch, epoch, 'storage announces everything again');
  assert.notEqual(store.problem, undefined);
  assert.deepEqual(store.applied, position(0));
  await assert.rejects(store.apply([published('b', 1)], position(2)), (error) => isRonError(error, 'conflict'));
  await store.apply([published('a', 1), published('b', 1)], position(2));
  assert.equal(store.problem, undefined);
});
