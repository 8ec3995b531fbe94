/** Uploads expire, finish and make room for others. */
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { isRonError, RonError } from '@ron/kernel';
import { addressOf, bodyOf, CHUNK, content, dir, get, later, open, signal } from '../../test/uploads-fixture.ts';

test('uploads are bounded; expiry and termination make room', async () => {
  const opened = await open({ uploads_max: 2, expiry_ms: 60_000 });
  const first = await opened.uploads.create({ size: 10 });
  await opened.uploads.create({ size: 10 });
  await assert.rejects(opened.uploads.create({ size: 10 }), (error) => isRonError(error, 'busy'));
  await opened.uploads.terminate(first.id, signal);
  assert.equal(opened.uploads.status(first.id), undefined);
  await opened.uploads.create({ size: 10 });
  await later(61_000, async () => {
    await opened.uploads.create({ size: 10 });
    assert.deepEqual(opened.uploads.counts, { open: 1, finished: 0 });
    assert.equal(readdirSync(join(dir, 'uploads')).length, 1);
  });
});

test('an append extends the life of an upload; an expired one is gone even before the cleanup', async () => {
  const opened = await open({ expiry_ms: 60_000 });
  const { id } = await opened.uploads.create({ size: 100 });
  await later(50_000, () => opened.uploads.append({ id, offset: 0, body: bodyOf(content(10)), signal }));
  await later(100_000, async () => assert.equal(opened.uploads.status(id)!.offset, 10));
  const reopened = await open({ expiry_ms: 60_000 });
  await later(100_000, async () => assert.equal(reopened.uploads.status(id)!.offset, 10));
  await later(120_000, async () => {
    assert.equal(reopened.uploads.status(id), undefined);
    const body = bodyOf(content(10));
    await assert.rejects(reopened.uploads.append({ id, offset: 10, body, signal }), (error) =>
      isRonError(error, 'not_found'),
    );
    assert.equal(await reopened.uploads.expire(), 1);
  });
  assert.deepEqual(readdirSync(join(dir, 'uploads')), []);
});

test('finished uploads report their address until they expire, and the oldest make room', async () => {
  let opened = await open({ finished_max: 2, expiry_ms: 60_000 });
  const ids: string[] = [];
  for (const seed of [1, 2, 3]) {
    const { id } = await opened.uploads.create({ size: 10 });
    ids.push(id);
    await opened.uploads.append({ id, offset: 0, body: bodyOf(content(10, seed)), signal });
  }
  assert.equal(opened.uploads.status(ids[0]!), undefined);
  opened = await open({ finished_max: 2, expiry_ms: 60_000 });
  assert.equal((await opened.uploads.settle(ids[2]!, signal)).address, addressOf(content(10, 3)));
  await later(61_000, async () => assert.equal(await opened.uploads.expire(), 2));
  assert.ok(opened.store.has(addressOf(content(10, 1))));
});

test('a complete upload that was not marked as finished is finished by the next query', async () => {
  const opened = await open();
  const bytes = content(2 * CHUNK);
  const { id } = await opened.uploads.create({ size: bytes.length });
  const writer = opened.store.writer.bind(opened.store);
  opened.store.writer = (from) => {
    const made = writer(from);
    made.finish = () => Promise.reject(new RonError('not_ready', 'power cut'));
    return made;
  };
  await assert.rejects(opened.uploads.append({ id, offset: 0, body: bodyOf(bytes), signal }), /power cut/);
  const again = await open();
  assert.equal(again.uploads.status(id)!.address, undefined);
  assert.equal((await again.uploads.settle(id, signal)).address, addressOf(bytes));
  assert.deepEqual(await get(again.store, addressOf(bytes)), bytes);
});
