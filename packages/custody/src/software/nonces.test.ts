import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isRonError } from '@ron/kernel';
import { BLOCK_USES, NonceTracker, USES_MAX } from './nonces.ts';

const { signal } = new AbortController();
const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

test('nonces have 12 bytes and never repeat, and one reservation covers a block', async () => {
  const reserved: number[] = [];
  const tracker = new NonceTracker({ spent: 0, reserve: async (spent) => void reserved.push(spent) });
  const given = await Promise.all(Array.from({ length: BLOCK_USES + 1 }, () => tracker.next(signal)));
  assert.ok(given.every((nonce) => nonce.length === 12));
  assert.equal(new Set(given.map(hex)).size, given.length);
  assert.deepEqual(reserved, [BLOCK_USES, 2 * BLOCK_USES]);
  assert.equal(tracker.used, BLOCK_USES + 1);
});

test('after a restored backup, repeated numbers have new block ids', async () => {
  const lives = await Promise.all(
    [0, 0, 0].map((spent) => new NonceTracker({ spent, reserve: async () => undefined }).next(signal)),
  );
  assert.equal(new Set(lives.map((nonce) => hex(nonce.subarray(8)))).size, 1);
  assert.equal(new Set(lives.map(hex)).size, 3);
});

test('the last use before 2^32 succeeds, and every later one fails with rotate_needed', async () => {
  const tracker = new NonceTracker({ spent: USES_MAX - 1, reserve: async () => undefined });
  assert.equal(hex((await tracker.next(signal)).subarray(8)), 'ffffffff');
  for (let again = 0; again < 2; again++) {
    await assert.rejects(tracker.next(signal), (error) => isRonError(error, 'rotate_needed'));
  }
});

test('an aborted caller leaves; the others get their nonces', async () => {
  const gate = Promise.withResolvers<void>();
  const tracker = new NonceTracker({ spent: 0, reserve: () => gate.promise });
  const controller = new AbortController();
  const leaving = tracker.next(controller.signal);
  const staying = tracker.next(signal);
  controller.abort(new Error('enough'));
  await assert.rejects(leaving, /enough/);
  gate.resolve();
  assert.equal((await staying).length, 12);
});
