/** Many entries are stored by a thread of their own: what is read here is what it stored, and the end is orderly. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { HERE_ENTRIES_MAX, LmdbStore } from './lmdb-store.ts';
import type { Applied, Place } from './place-index.ts';

const MANY = HERE_ENTRIES_MAX + 1000;

function dirOf(t: TestContext): string {
  const dir = mkdtempSync(join(tmpdir(), 'ron-index-'));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  return join(dir, 'index');
}

const keyOf = (): string => `\x01${randomBytes(32).toString('latin1')}`;
const placeOf = (seq: number): Place => ({
  segment: 3,
  offset: seq * 64,
  type: 1,
  payload_bytes: 5,
  meta_bytes: 2,
  seq,
  time_s: 7,
});
const appliedAt = (seq: number): Applied => ({ position: { segment: 3, offset: seq * 64 }, seq });

function entries(count: number, seq: number): Map<string, Place | undefined> {
  return new Map(Array.from({ length: count }, (_, index) => [keyOf(), placeOf(seq + index)]));
}

test('what was stored, much or little, is found at once and after the next start; so is what was removed', async (t) => {
  const path = dirOf(t);
  const { store } = LmdbStore.open(path);
  const much = entries(MANY, 0);
  // Whoever reads has what was there before in view, until then.
  assert.equal(store.get(much.keys().next().value!), undefined);
  await store.store(much, appliedAt(MANY));
  for (const [key, place] of much) assert.deepEqual(store.get(key), place);
  const little = entries(100, MANY);
  const removed = [...much.keys()].slice(0, 3000);
  await store.store(little, appliedAt(MANY + 100));
  await store.store(new Map(removed.map((key) => [key, undefined])), appliedAt(MANY + 200));
  for (const key of removed) assert.equal(store.get(key), undefined);
  await store.close();

  const { store: again, rebuilt } = LmdbStore.open(path);
  assert.equal(rebuilt, undefined);
  assert.deepEqual(again.applied, appliedAt(MANY + 200));
  for (const [key, place] of little) assert.deepEqual(again.get(key), place);
  assert.equal([...again.range('\x01', '\x02')].length, MANY - 3000 + 100);
  await again.close();
});

test('whoever reads all the time sees what was stored when it is stored, and not a moment later', async (t) => {
  const { store } = LmdbStore.open(dirOf(t));
  const over = new AbortController();
  const reading = (async () => {
    while (!over.signal.aborted) {
      store.get(keyOf());
      await new Promise(setImmediate);
    }
  })();
  try {
    for (let turn = 0; turn < 6; turn++) {
      const much = entries(MANY, turn * MANY);
      await store.store(much, appliedAt((turn + 1) * MANY));
      for (const key of much.keys()) assert.ok(store.get(key) !== undefined, `turn ${turn}`);
    }
  } finally {
    over.abort();
    await reading;
  }
  await store.close();
});

test('a store that is closed while much is stored ends, and how far it got is what it says', async (t) => {
  const path = dirOf(t);
  const { store } = LmdbStore.open(path);
  await store.store(entries(3000, 0), appliedAt(3000));
  const storing = store.store(entries(2 * MANY, 3000), appliedAt(3000 + 2 * MANY)).then(
    () => true,
    () => false,
  );
  await store.close();
  const isStored = await storing;
  const { store: again } = LmdbStore.open(path);
  assert.deepEqual(again.applied, appliedAt(isStored ? 3000 + 2 * MANY : 3000));
  await again.close();
});
