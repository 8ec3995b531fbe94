import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isRonError } from '@ron/kernel';
import { CrashFileSystem } from '@ron/log/testing';
import { BATCH_MAX } from '../backend/backend.ts';
import { FileBackend, type FileBackendInit } from './file-backend.ts';
import { MemoryBackend } from './memory-backend.ts';
import { BLOCK_USES } from './nonces.ts';

const { signal } = new AbortController();
const PATH = '/keys/keys.sealed';
const EMPTY = new Uint8Array(0);

function open(fs: CrashFileSystem, init: Partial<FileBackendInit> = {}): Promise<FileBackend> {
  return FileBackend.open({ path: PATH, unlock: { kek: new Uint8Array(32).fill(1) }, fs, signal, ...init });
}

const nonceOf = (wrapped: Uint8Array): string => Buffer.from(wrapped.subarray(1, 13)).toString('hex');
const numberOf = (wrapped: Uint8Array): number => Buffer.from(wrapped).readUInt32BE(9);

test('nonces never repeat across power cuts at any moment', async () => {
  const fs = new CrashFileSystem();
  const backend = await open(fs);
  const { key } = await backend.create('aes-256-gcm', '', signal);
  const created_at = fs.operations;
  const wraps: { at: number; wrapped: Uint8Array }[] = [];
  for (let count = 0; count < 3; count++) {
    const wrapped = await backend.wrap(key, EMPTY, EMPTY, signal);
    wraps.push({ at: fs.operations, wrapped });
  }
  for (let at = created_at; at <= fs.operations; at++) {
    const before = wraps.filter((each) => each.at <= at).map((each) => each.wrapped);
    for (const image of fs.imagesAt(at, 64, Math.random)) {
      const next = await (await open(new CrashFileSystem(image))).wrap(key, EMPTY, EMPTY, signal);
      assert.ok(!before.map(numberOf).includes(numberOf(next)), `number ${numberOf(next)} repeats`);
    }
  }
  assert.equal(numberOf(wraps[0]?.wrapped ?? EMPTY), 0);
});

test('nonces never repeat after a rollback of the file', async () => {
  const fs = new CrashFileSystem();
  const backend = await open(fs);
  const { key } = await backend.create('aes-256-gcm', '', signal);
  const backup = fs.files();
  const first = await backend.wrap(key, EMPTY, EMPTY, signal);
  const restored = await (await open(new CrashFileSystem(backup))).wrap(key, EMPTY, EMPTY, signal);
  assert.equal(numberOf(restored), numberOf(first), 'the number repeats');
  assert.notEqual(nonceOf(restored), nonceOf(first), 'the nonce does not');
});

test('a block of wraps costs one write', async () => {
  const fs = new CrashFileSystem();
  const backend = await open(fs);
  const { key } = await backend.create('aes-256-gcm', '', signal);
  const { version } = backend;
  const wraps = await Promise.all(Array.from({ length: BLOCK_USES }, () => backend.wrap(key, EMPTY, EMPTY, signal)));
  assert.equal(backend.version, version + 1);
  assert.equal(new Set(wraps.map(nonceOf)).size, BLOCK_USES);
});

test('the file contains no plaintext secret, and keys of another file do not open in it', async () => {
  const fs = new CrashFileSystem();
  const backend = await open(fs);
  const { key } = await backend.create('hmac-sha256', 'a label', signal);
  const bytes = Buffer.from(fs.files().get(PATH) ?? EMPTY);
  for (const text of [key, 'a label', 'hmac-sha256']) assert.ok(!bytes.includes(text), `${text} is in plaintext`);
});

test('a full backend refuses with storage_full, and destroying a key makes room', async () => {
  for (const backend of [await open(new CrashFileSystem(), { keys_max: 2 }), new MemoryBackend({ keys_max: 2 })]) {
    const { key } = await backend.create('ed25519', '', signal);
    await backend.create('ed25519', '', signal);
    await assert.rejects(backend.create('ed25519', '', signal), (error) => isRonError(error, 'storage_full'));
    await backend.destroy(key, signal);
    await backend.create('ed25519', '', signal);
  }
});

test('a disk failure during create leaves no key and does not affect others', async () => {
  let isFailing = false;
  const fs = new CrashFileSystem(new Map(), {
    before(operation) {
      if (isFailing && operation === 'sync') throw Object.assign(new Error('disk'), { code: 'EIO' });
    },
  });
  const backend = await open(fs);
  const { key } = await backend.create('aes-256-gcm', '', signal);
  isFailing = true;
  await assert.rejects(backend.create('ed25519', '', signal), (error) => isRonError(error, 'not_ready'));
  await assert.rejects(backend.wrap(key, EMPTY, EMPTY, signal), (error) => isRonError(error, 'not_ready'));
  await assert.rejects(backend.destroy(key, signal), (error) => isRonError(error, 'not_ready'));
  isFailing = false;
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
