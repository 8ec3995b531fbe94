import assert from 'node:assert/strict';
import { test } from 'node:test';
import { installSched, isRonError, sched } from '@ron/kernel';
import { MemoryDisk } from '../audit/memory-disk.ts';
import { RETENTION_MS, OP_KEY_BYTES, OpLedger, requestHash, type OpLedgerInit } from './op-ledger.ts';

const NEVER = new AbortController().signal;
const KEY = new Uint8Array(OP_KEY_BYTES).fill(7);
const open = (fs: MemoryDisk, entries_max = 100, more: Partial<OpLedgerInit> = {}) =>
  OpLedger.open({ dir: '/ops', fs, entries_max, key: KEY, signal: NEVER, ...more });
const op = (op_id: string, request: unknown = { a: 1 }, tenant = 'acme') => ({ tenant, op_id, request });
const isConflict = (error: unknown): boolean => isRonError(error, 'conflict');

test('an operation runs once, even across a restart; another request with its id is refused', async () => {
  const fs = new MemoryDisk(1 << 20);
  let done = 0;
  const work = async () => ({ kid: `key ${++done}` });
  const ledger = await open(fs);
  assert.deepEqual(await ledger.once(op('x'), work, NEVER), { kid: 'key 1' });
  assert.deepEqual(await ledger.once(op('x'), work, NEVER), { kid: 'key 1' });
  await assert.rejects(ledger.once(op('x', { a: 2 }), work, NEVER), isConflict);
  assert.deepEqual(await ledger.once(op('x', { a: 1 }, 'zoo'), work, NEVER), { kid: 'key 2' });
  await ledger.close();
  const again = await open(fs);
  assert.equal(again.size, 2);
  assert.deepEqual(await again.once(op('x'), work, NEVER), { kid: 'key 1' });
  await assert.rejects(again.once(op('x', { a: 2 }), work, NEVER), isConflict);
  assert.equal(done, 2);
});

test('concurrent requests wait for the answer and can be aborted', async () => {
  const ledger = await open(new MemoryDisk(1 << 20));
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
  const ledger = await open(new MemoryDisk(1 << 20));
  const failing = ledger.once(op('x'), () => Promise.reject(new Error('not now')), NEVER);
  const waiting = ledger.once(op('x'), async () => 'second', NEVER);
  await assert.rejects(failing, /not now/);
  assert.equal(await waiting, 'second');
  assert.equal(ledger.size, 1);
});

test('ids are stored for thirty days and then removed, on disk too', async () => {
  const fs = new MemoryDisk(1 << 20);
  let now_ms = Date.now();
  const previous = installSched({ ...sched, wall_ms: () => now_ms });
  try {
    const ledger = await open(fs, 2);
    assert.equal(await ledger.once(op('old'), async () => 'first', NEVER), 'first');
    now_ms += RETENTION_MS - 2000;
    assert.equal(await ledger.once(op('old'), async () => 'again', NEVER), 'first');
    now_ms += 4000;
    assert.equal(await ledger.once(op('old'), async () => 'again', NEVER), 'again');
    await ledger.close();
    now_ms += RETENTION_MS + 2000;
    assert.equal((await open(fs)).size, 0);
  } finally {
    installSched(previous);
  }
});

test('nothing runs if the ledger is full', async () => {
  const ledger = await open(new MemoryDisk(1 << 20), 4);
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

test('missing, foreign and forged records are detected', async () => {
  const fs = new MemoryDisk(1 << 20);
  const ledger = await open(fs);
  for (const id of ['a', 'b', 'c']) await ledger.once(op(id), async () => id, NEVER);
  const known = ledger.extent;
  assert.deepEqual(known, { first: 1, last: 3, count: 3, segment: 1 });
  await ledger.once(op('later'), async () => 'later', NEVER);
  await ledger.close();
  const problemWith = async (more: Partial<OpLedgerInit>): Promise<string | undefined> => {
    await using opened = await open(fs, 100, more);
    return opened.problem;
  };
  assert.equal(await problemWith({}), undefined);
  assert.equal(await problemWith({ known }), undefined);
  assert.match((await problemWith({ known: { ...known, last: 7, count: 7 } }))!, /3 of 7 completed operations/);
  assert.match(
    (await problemWith({ key: new Uint8Array(OP_KEY_BYTES) }))!,
    /4 of its records .* belong to another node/,
  );
});

test('segments are removed once the stored extent no longer needs them', async () => {
  const fs = new MemoryDisk(64 << 20);
  const segments = async (): Promise<number> => (await fs.list('/ops/segments')).length;
  let now_ms = Date.now();
  const previous = installSched({ ...sched, wall_ms: () => now_ms });
  try {
    const ledger = await open(fs);
    const large = 'x'.repeat(1_000_000);
    for (let at = 0; at < 20; at++) await ledger.once(op(`old ${at}`), async () => large, NEVER);
    assert.equal(await segments(), 3);
    now_ms += RETENTION_MS + 2000;
    await ledger.once(op('new'), async () => 'new', NEVER);
    const known = ledger.extent;
    assert.deepEqual([known.first, known.last, known.count], [21, 21, 1]);
    assert.equal(await segments(), 3, 'segments are removed too early');
    await ledger.prune(known);
    assert.equal(await segments(), 1);
    await ledger.close();
    assert.equal((await open(fs, 100, { known })).problem, undefined);
  } finally {
    installSched(previous);
  }
});
