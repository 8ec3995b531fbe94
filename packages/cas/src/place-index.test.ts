/** What was set is found, wherever it is on its way to the store; and the store never knows more than the log. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { MemoryStore } from './memory-store.ts';
import { PlaceIndex, type Applied, type Changes, type FlushInit, type Place } from './place-index.ts';

const idOf = (key: number): Uint8Array => blake3(Buffer.from(`${key}`));
const placeOf = (offset: number): Place => ({
  segment: 1,
  offset,
  type: 1,
  payload_bytes: 10,
  meta_bytes: 0,
  seq: offset,
  time_s: 5,
});
const appliedTo = (offset: number): Applied => ({ position: { segment: 1, offset }, seq: offset });
const flushTo = (offset: number, init: Partial<FlushInit> = {}): FlushInit => ({
  applied: () => appliedTo(offset),
  ...init,
});

/** A store whose transactions take until they are let go, or fail. */
class SlowStore extends MemoryStore {
  gate: Promise<void> = Promise.resolve();

  override async store(changes: Changes, applied: Applied): Promise<void> {
    await this.gate;
    await super.store(changes, applied);
  }
}

test('an entry is found before, while and after it is taken to the store; the newest one counts', async () => {
  const store = new SlowStore();
  const index = new PlaceIndex(store);
  index.set('content', idOf(1), placeOf(10));
  assert.equal(index.get('content', idOf(1))!.offset, 10);
  assert.equal(index.get('object', idOf(1)), undefined);
  const gate = Promise.withResolvers<void>();
  store.gate = gate.promise;
  const flush = index.flush(flushTo(20));
  await Promise.resolve();
  assert.equal(index.get('content', idOf(1))!.offset, 10);
  index.set('content', idOf(1), placeOf(30));
  index.remove('content', idOf(2));
  gate.resolve();
  await flush;
  assert.equal(index.get('content', idOf(1))!.offset, 30);
  await index.flush(flushTo(40));
  assert.equal(new PlaceIndex(store).get('content', idOf(1))!.offset, 30);
  index.remove('content', idOf(1));
  assert.equal(index.get('content', idOf(1)), undefined);
  await index.flush(flushTo(50));
  assert.equal(new PlaceIndex(store).get('content', idOf(1)), undefined);
});

test('how far the log is reflected is never ahead of the entries, and never goes back', async () => {
  const store = new SlowStore();
  const index = new PlaceIndex(store);
  let tail = 10;
  const gate = Promise.withResolvers<void>();
  store.gate = gate.promise;
  index.set('content', idOf(1), placeOf(1));
  const init = flushTo(0, { applied: () => appliedTo(tail) });
  const first = index.flush(init);
  await Promise.resolve();
  index.set('content', idOf(2), placeOf(2));
  tail = 20;
  const second = index.flush(init);
  index.set('content', idOf(3), placeOf(3));
  tail = 30;
  // It joins the one that has not begun, which sees what is set until it does.
  assert.equal(index.flush(init), second);
  gate.resolve();
  await first;
  assert.deepEqual(store.applied, appliedTo(10));
  await second;
  assert.deepEqual(store.applied, appliedTo(30));
  assert.equal([...index.entries('content')].length, 3);
  assert.equal(index.pending, 0);
});

test('a flush that fails loses nothing', async () => {
  const store = new SlowStore();
  const index = new PlaceIndex(store);
  index.set('pin', idOf(1), placeOf(1));
  store.gate = Promise.reject(new Error('full'));
  await assert.rejects(index.flush(flushTo(10)), /full/);
  assert.equal(store.applied, undefined);
  assert.equal(index.get('pin', idOf(1))!.offset, 1);
  store.gate = Promise.resolve();
  await index.flush(flushTo(10));
  assert.equal(new PlaceIndex(store).get('pin', idOf(1))!.offset, 1);
});

test('entries that were set while a flush failed lie above those that it gives back', async () => {
  const store = new SlowStore();
  const index = new PlaceIndex(store);
  index.set('content', idOf(1), placeOf(1));
  index.set('content', idOf(2), placeOf(2));
  const gate = Promise.withResolvers<void>();
  store.gate = gate.promise;
  const flush = assert.rejects(index.flush(flushTo(10)), /full/);
  await Promise.resolve();
  index.set('content', idOf(1), placeOf(20));
  index.remove('content', idOf(2));
  gate.reject(new Error('full'));
  await flush;
  assert.equal(index.get('content', idOf(1))!.offset, 20);
  assert.equal(index.get('content', idOf(2)), undefined);
});

test('a flush without anything new does not bother the store', async () => {
  const store = new SlowStore();
  const index = new PlaceIndex(store);
  index.set('content', idOf(1), placeOf(1));
  await index.flush(flushTo(10));
  store.gate = Promise.reject(new Error('asked'));
  store.gate.catch(() => undefined);
  await index.flush(flushTo(10));
  await assert.rejects(index.flush(flushTo(11)), /asked/);
});

test('entries come in order of ids, from anywhere', async () => {
  const store = new SlowStore();
  const index = new PlaceIndex(store);
  const ids = Array.from({ length: 50 }, (_, key) => idOf(key));
  for (const [at, id] of ids.entries()) index.set('object', id, placeOf(at));
  index.set('content', idOf(99), placeOf(99));
  await index.flush(flushTo(100));
  const sorted = ids.map((id) => Buffer.from(id).toString('hex')).toSorted();
  const all = [...index.entries('object')].map(([id]) => id.toString('hex'));
  assert.deepEqual(all, sorted);
  const rest = [...index.entries('object', Buffer.from(sorted[20]!, 'hex'))].map(([id]) => id.toString('hex'));
  assert.deepEqual(rest, sorted.slice(21));
});
