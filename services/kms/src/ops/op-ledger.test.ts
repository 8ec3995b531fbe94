import assert from 'node:assert/strict';
import { test } from 'node:test';
import { installSched, isRonError, sched } from '@ron/kernel';
import { MemoryStore } from '@ron/custody/store';
import { requestHash, RETENTION_MS } from './op-id.ts';
import { OpLedger, WINDOW_MS } from './op-ledger.ts';

const NEVER = new AbortController().signal;
const newStore = (): MemoryStore => new MemoryStore(1 << 24);
const open = (store: MemoryStore, entries_max = 100): OpLedger => new OpLedger({ store, entries_max });
const op = (op_id: string, request: unknown = { a: 1 }, tenant = 'acme') => ({ tenant, op_id, request });
const isConflict = (error: unknown): boolean => isRonError(error, 'conflict');

test('an operation runs once, even across a restart; another request with its id is refused', async () => {
  const store = newStore();
  let done = 0;
  const work = async () => ({ kid: `key ${++done}` });
  const ledger = open(store);
  assert.deepEqual(await ledger.once(op('x'), work, NEVER), { kid: 'key 1' });
  assert.deepEqual(await ledger.once(op('x'), work, NEVER), { kid: 'key 1' });
  await assert.rejects(ledger.once(op('x', { a: 2 }), work, NEVER), isConflict);
  assert.deepEqual(await ledger.once(op('x', { a: 1 }, 'zoo'), work, NEVER), { kid: 'key 2' });
  const again = open(store);
  assert.equal(again.size, 2);
  assert.deepEqual(await again.once(op('x'), work, NEVER), { kid: 'key 1' });
  await assert.rejects(again.once(op('x', { a: 2 }), work, NEVER), isConflict);
  assert.equal(done, 2);
});

test('concurrent requests wait for the answer and can be aborted', async () => {
  const ledger = open(newStore());
  const { promise, resolve } = Promise.withResolvers<string>();
  const first = ledger.once(op('x'), () => promise, NEVER);
  const second = ledger.once(op('x'), () => assert.fail('it runs once'), NEVER);
  const left = AbortSignal.abort(new Error('left'));
  await assert.rejects(
    ledger.once(op('x'), () => assert.fail('it runs once'), left),
    /left/,
  );
  await assert.rejects(
    ledger.once(op('x', 'other'), () => assert.fail('it runs once'), NEVER),
    isConflict,
  );
  resolve('answer');
  assert.deepEqual(await Promise.all([first, second]), ['answer', 'answer']);
});

test('a failed operation leaves no record, and a waiting request runs it again', async () => {
  const ledger = open(newStore());
  const failing = ledger.once(op('x'), () => Promise.reject(new Error('not now')), NEVER);
  const waiting = ledger.once(op('x'), async () => 'second', NEVER);
  await assert.rejects(failing, /not now/);
  assert.equal(await waiting, 'second');
  assert.equal(ledger.size, 1);
});

test('ids are stored for thirty days and then removed, on disk too', async () => {
  const store = newStore();
  let now_ms = Date.now();
  const previous = installSched({ ...sched, wall_ms: () => now_ms });
  try {
    const ledger = open(store, 2);
    assert.equal(await ledger.once(op('old'), async () => 'first', NEVER), 'first');
    now_ms += RETENTION_MS - 2000;
    assert.equal(await ledger.once(op('old'), async () => 'again', NEVER), 'first');
    now_ms += 4000;
    assert.equal(await ledger.once(op('old'), async () => 'again', NEVER), 'again');
    now_ms += RETENTION_MS + 2000;
    const later = open(store);
    for (const id of ['a', 'b']) await later.once(op(id, 1, 'zoo'), async () => 'x', NEVER);
    assert.equal(store.count('ops'), 2, 'expired ids of other tenants are removed');
    assert.deepEqual([store.count('op_times'), store.count('tenants')], [2, 1]);
  } finally {
    installSched(previous);
  }
});

test('nothing runs if the ledger is full', async () => {
  const ledger = open(newStore(), 4);
  for (const id of ['a', 'b']) await ledger.once(op(id), async () => id, NEVER);
  await assert.rejects(
    ledger.once(op('c'), () => assert.fail('nothing runs'), NEVER),
    (error) => isRonError(error, 'storage_full'),
  );
  assert.equal(await ledger.once(op('c', 1, 'zoo'), async () => 'room for another', NEVER), 'room for another');
});

test('the order of the members of a request does not matter', () => {
  assert.equal(requestHash({ a: 1, b: [{ c: 2, d: undefined }] }), requestHash({ b: [{ c: 2 }], a: 1 }));
  assert.notEqual(requestHash({ a: [1, 2] }), requestHash({ a: [2, 1] }));
});

test('a tenant that has used its share loses ids that are older than a day, and no younger ones', async () => {
  const store = newStore();
  let now_ms = Date.now();
  const previous = installSched({ ...sched, wall_ms: () => now_ms });
  try {
    const ledger = open(store, 8);
    for (const id of ['a', 'b', 'c', 'd']) await ledger.once(op(id), async () => id, NEVER);
    const refuse = (): Promise<unknown> => ledger.once(op('e'), () => assert.fail('nothing runs'), NEVER);
    await assert.rejects(refuse(), (error) => isRonError(error, 'storage_full'));
    now_ms += WINDOW_MS - 1;
    await assert.rejects(refuse(), (error) => isRonError(error, 'storage_full'));
    assert.equal(await ledger.once(op('a'), () => assert.fail('it is stored'), NEVER), 'a');
    now_ms += 2;
    assert.equal(await ledger.once(op('e'), async () => 'e', NEVER), 'e');
    assert.equal(await ledger.once(op('a'), async () => 'again', NEVER), 'again');
    assert.ok(ledger.size <= 4, `${ledger.size} ids`);
  } finally {
    installSched(previous);
  }
});

test('concurrent operations of one tenant do not exceed its share', async () => {
  const ledger = open(newStore(), 8);
  const { promise, resolve } = Promise.withResolvers<string>();
  const ids = ['a', 'b', 'c', 'd', 'e', 'f'];
  const all = Promise.allSettled(ids.map((id) => ledger.once(op(id), () => promise, NEVER)));
  await new Promise((done) => setImmediate(done));
  resolve('done');
  const stored = (await all).filter(({ status }) => status === 'fulfilled');
  assert.deepEqual([stored.length, ledger.size], [4, 4]);
});
