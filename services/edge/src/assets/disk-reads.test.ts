import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isRonError, NEVER } from '@ron/kernel';
import { DiskReads } from './disk-reads.ts';

const isBusy = (error: unknown): boolean => isRonError(error, 'busy');

test('[edge I-9] a read above the limit is refused at once and counted, and one that ends makes room', async () => {
  const reads = new DiskReads(2);
  const first = Promise.withResolvers<string>();
  const second = Promise.withResolvers<string>();
  const running = [reads.run(NEVER, () => first.promise), reads.run(NEVER, () => second.promise)];
  assert.equal(reads.depth, 2);
  await assert.rejects(
    reads.run(NEVER, () => assert.fail('it is not started')),
    isBusy,
  );
  assert.equal(reads.busy_total, 1);
  first.resolve('a');
  assert.equal(await running[0], 'a');
  assert.equal(await reads.run(NEVER, () => Promise.resolve('b')), 'b');
  second.reject(new Error('the disk failed'));
  await assert.rejects(running[1]!, /the disk failed/);
  assert.equal(reads.depth, 0, 'a failed read leaves no place taken');
});

test('an answer that has begun waits for its next batch instead of being refused', async () => {
  const reads = new DiskReads(1);
  const bytes = [[Buffer.from('a')], [Buffer.from('b')]];
  async function* source() {
    yield* bytes;
  }
  const iterator = reads.batches(NEVER, source)[Symbol.asyncIterator]();
  assert.deepEqual((await iterator.next()).value, bytes[0]);
  assert.equal(reads.depth, 0, 'no place is held while the client receives the bytes');
  const other = Promise.withResolvers<void>();
  const running = reads.run(NEVER, () => other.promise);
  const next = iterator.next();
  await assert.rejects(
    reads.run(NEVER, () => assert.fail('it is not started')),
    isBusy,
  );
  other.resolve();
  await running;
  assert.deepEqual((await next).value, bytes[1]);
  assert.equal((await iterator.next()).done, true);
});

test('the first batch is refused if there is no room, and a source that is left is closed', async () => {
  const reads = new DiskReads(1);
  let closed = 0;
  async function* source() {
    try {
      yield [Buffer.from('a')];
      yield [Buffer.from('b')];
    } finally {
      closed += 1;
    }
  }
  const other = Promise.withResolvers<void>();
  const running = reads.run(NEVER, () => other.promise);
  await assert.rejects(reads.batches(NEVER, source)[Symbol.asyncIterator]().next(), isBusy);
  other.resolve();
  await running;
  for await (const batch of reads.batches(NEVER, source)) {
    assert.equal(batch.length, 1);
    break;
  }
  assert.equal(closed, 1);
});

test('a batch that waits ends with its signal', async () => {
  const reads = new DiskReads(1);
  const leaving = new AbortController();
  async function* source() {
    yield [Buffer.from('a')];
    yield [Buffer.from('b')];
  }
  const iterator = reads.batches(leaving.signal, source)[Symbol.asyncIterator]();
  await iterator.next();
  const other = Promise.withResolvers<void>();
  const running = reads.run(NEVER, () => other.promise);
  const next = iterator.next();
  leaving.abort(new Error('the client left'));
  await assert.rejects(next, /the client left/);
  other.resolve();
  await running;
  assert.equal(reads.depth, 0);
});
