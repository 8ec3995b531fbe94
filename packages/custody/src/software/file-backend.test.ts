import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isRonError, RonError } from '@ron/kernel';
import { BATCH_MAX } from '../backend/backend.ts';
import { MemoryStore, type StoreImage } from '../store/memory-store.ts';
import type { Change } from '../store/record-store.ts';
import { FileBackend, SECRETS } from './file-backend.ts';
import { MemoryBackend } from './memory-backend.ts';
import { BLOCK_USES } from './nonces.ts';

const { signal } = new AbortController();
const EMPTY = new Uint8Array(0);

/** A store in memory that keeps an image of each state, and fails on demand. */
class ImagedStore extends MemoryStore {
  readonly images: StoreImage[] = [this.image()];
  isFailing = false;

  constructor(image?: StoreImage) {
    super(1 << 20, image);
  }

  seal = (_context: string, plaintext: Uint8Array): Uint8Array => plaintext.slice();
  unseal = (_context: string, sealed: Uint8Array): Uint8Array => sealed.slice();

  protected override async write(changes: readonly Change[]): Promise<void> {
    await Promise.resolve();
    if (this.isFailing) throw new RonError('not_ready', 'the disk failed');
    await super.write(changes);
    this.images.push(this.image());
  }
}

const nonceOf = (wrapped: Uint8Array): string => Buffer.from(wrapped.subarray(1, 13)).toString('hex');
const numberOf = (wrapped: Uint8Array): number => Buffer.from(wrapped).readUInt32BE(9);

test('nonces never repeat across power cuts at any moment', async () => {
  const store = new ImagedStore();
  await using backend = new FileBackend({ store });
  const { key } = await backend.create('aes-256-gcm', '', signal);
  const wraps: { after: number; wrapped: Uint8Array }[] = [];
  for (let count = 0; count < 2 * BLOCK_USES; count += BLOCK_USES / 2) {
    const wrapped = await backend.wrap(key, EMPTY, EMPTY, signal);
    wraps.push({ after: store.images.length, wrapped });
    for (let more = 1; more < BLOCK_USES / 2; more++) await backend.wrap(key, EMPTY, EMPTY, signal);
  }
  assert.equal(numberOf(wraps[0]!.wrapped), 0);
  assert.equal(store.images.length, 4, 'a block of wraps costs one write');
  for (const [at, image] of store.images.entries()) {
    if (at < 1) continue;
    await using restarted = new FileBackend({ store: new ImagedStore(image) });
    const next = await restarted.wrap(key, EMPTY, EMPTY, signal);
    const before = wraps.filter(({ after }) => after <= at + 1).map(({ wrapped }) => numberOf(wrapped));
    assert.ok(!before.includes(numberOf(next)), `number ${numberOf(next)} repeats`);
  }
});

test('nonces never repeat after a rollback of the store', async () => {
  const store = new ImagedStore();
  await using backend = new FileBackend({ store });
  const { key } = await backend.create('aes-256-gcm', '', signal);
  const backup = store.image();
  const first = await backend.wrap(key, EMPTY, EMPTY, signal);
  await using again = new FileBackend({ store: new ImagedStore(backup) });
  const restored = await again.wrap(key, EMPTY, EMPTY, signal);
  assert.equal(numberOf(restored), numberOf(first), 'the number repeats');
  assert.notEqual(nonceOf(restored), nonceOf(first), 'the nonce does not');
});

test('a key that was unloaded works as before and repeats no nonce', async () => {
  await using backend = new FileBackend({ store: new ImagedStore(), loaded_max: 2 });
  const keys: string[] = [];
  for (let count = 0; count < 5; count++) keys.push((await backend.create('aes-256-gcm', '', signal)).key);
  const wraps: Uint8Array[] = [];
  for (let round = 0; round < 3; round++) {
    for (const key of keys) wraps.push(await backend.wrap(key, EMPTY, EMPTY, signal));
  }
  const numbers = wraps.filter((_, at) => at % keys.length === 0).map(numberOf);
  assert.deepEqual(numbers, [0, BLOCK_USES, 2 * BLOCK_USES], 'each load begins a block');
  for (const [at, wrapped] of wraps.entries()) await backend.unwrap(keys[at % keys.length]!, wrapped, EMPTY, signal);
  // Concurrent reservations of one key while others are loaded.
  const many = await Promise.all(keys.flatMap((key) => [0, 1, 2].map(() => backend.wrap(key, EMPTY, EMPTY, signal))));
  assert.equal(new Set(many.map(nonceOf)).size, many.length);
});

test('a full backend refuses with storage_full, and destroying a key makes room', async () => {
  for (const backend of [
    new FileBackend({ store: new ImagedStore(), keys_max: 2 }),
    new MemoryBackend({ keys_max: 2 }),
  ]) {
    const { key } = await backend.create('ed25519', '', signal);
    await backend.create('ed25519', '', signal);
    await assert.rejects(backend.create('ed25519', '', signal), (error) => isRonError(error, 'storage_full'));
    await backend.destroy(key, signal);
    await backend.create('ed25519', '', signal);
    await backend.close();
  }
});

test('a disk failure during create leaves no key and does not affect others', async () => {
  const store = new ImagedStore();
  await using backend = new FileBackend({ store });
  const { key } = await backend.create('aes-256-gcm', '', signal);
  store.isFailing = true;
  await assert.rejects(backend.create('ed25519', '', signal), (error) => isRonError(error, 'not_ready'));
  await assert.rejects(backend.wrap(key, EMPTY, EMPTY, signal), (error) => isRonError(error, 'not_ready'));
  await assert.rejects(backend.destroy(key, signal), (error) => isRonError(error, 'not_ready'));
  store.isFailing = false;
  assert.equal(store.count(SECRETS), 1);
  await backend.unwrap(key, await backend.wrap(key, EMPTY, EMPTY, signal), EMPTY, signal);
});

const REQUEST_BYTES_MAX = 1024 * 1024;

test('batches of any algorithm yield the event loop', async () => {
  await using backend = new MemoryBackend();
  for (const alg of ['ed25519', 'ml-dsa-65', 'hybrid'] as const) {
    const { key } = await backend.create(alg, '', signal);
    // As much as one request can contain.
    const messages = Array.from({ length: BATCH_MAX }, () => Buffer.alloc(REQUEST_BYTES_MAX / BATCH_MAX));
    const held_us = await longestCpu_us(() => backend.signMany(key, messages, signal));
    // CPU time, so that other load on the machine does not count.
    // [kms I-7]
    assert.ok(held_us < 15_000, `${alg} held the event loop for ${held_us} us`);
  }
});

/** The longest CPU time of this thread between two turns of its event loop. */
async function longestCpu_us(work: () => Promise<unknown>): Promise<number> {
  const state = { isDone: false };
  const working = work().finally(() => (state.isDone = true));
  let longest = 0;
  while (!state.isDone) {
    const before = process.threadCpuUsage();
    await new Promise((resolve) => setImmediate(resolve));
    const { user, system } = process.threadCpuUsage(before);
    longest = Math.max(longest, user + system);
  }
  await working;
  return longest;
}
