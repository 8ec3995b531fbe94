/** A failed sync loses exactly the records that it should have made durable. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { realFileSystem, type File, type FileSystem } from '@ron/log';
import { addressBytes, type Address } from '@ron/proto';
import { isRonError } from '@ron/kernel';
import { eventually } from '@ron/testkit';
import { LocalVolume } from './local-volume.ts';
import { ObjectStore } from '../objects/object-store.ts';
import { RecordType } from './record-types.ts';

const signal = new AbortController().signal;
const BODY = Buffer.from('acknowledged');
let dir: string;
let failures: number;
let volume: LocalVolume;
let store: ObjectStore;
let address: Address;
let id: Uint8Array;

const failing = (file: File): File =>
  new Proxy(file, {
    get: (target, name) => {
      const value: unknown = Reflect.get(target, name);
      if (name !== 'sync') return typeof value === 'function' ? (value.bind(target) as unknown) : value;
      return async () => {
        if (failures-- > 0) throw Object.assign(new Error('EIO'), { code: 'EIO' });
        await target.sync();
      };
    },
  });

const fs: FileSystem = {
  ...realFileSystem,
  create: async (path) => failing(await realFileSystem.create(path)),
  open: async (path, access) => failing(await realFileSystem.open(path, access)),
};

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'ron-failed-sync-'));
  failures = 0;
  volume = await LocalVolume.open({ dir, fs, flush_after_ms: Infinity, signal });
  store = new ObjectStore({ volume, cache_bytes: 0 });
  ({ address } = await store.put(BODY, {}, signal));
  id = addressBytes(address);
});
afterEach(async () => {
  failures = 0;
  await volume.close();
  rmSync(dir, { recursive: true });
});

const flush = (): Promise<unknown> => volume.inventory('object', undefined, 1);

/** Written, and lost by the sync that should have made it durable. */
async function loseBySync(type: number): Promise<void> {
  await volume.put([{ type, id, payload: type === RecordType.remove ? new Uint8Array(0) : BODY }], signal, 'later');
  assertHere();
  failures = 1;
  await assert.rejects(volume.sync(signal));
}

function assertHere(): void {
  assert.ok(store.has(address));
  assert.ok(volume.isDurable('object', id) && volume.isDurable('content', id));
}

for (const isStored of [true, false]) {
  const where = isStored ? 'is in the store' : 'waits for the store too';
  for (const [what, type] of [
    ['put again', RecordType.object],
    ['removed', RecordType.remove],
  ] as const) {
    test(`an object whose entry ${where} is still found when it was ${what} by a write that was lost`, async () => {
      if (isStored) await flush();
      const known = await volume.index.get('object', id);
      await loseBySync(type);
      assert.deepEqual(await volume.index.get('object', id), known);
      assertHere();
    });
  }
}

test('a failed removal can be retried', async () => {
  failures = 1;
  await assert.rejects(store.remove(address, signal));
  assertHere();
});

test('a record is visible once a sync has made it durable, and never if the sync failed', async () => {
  const note = { type: RecordType.note, id, payload: BODY };
  await volume.put([note], signal, 'later');
  assert.ok(!volume.has('note', id) && volume.getNow('note', id) === undefined);
  failures = 1;
  await assert.rejects(volume.sync(signal));
  await flush();
  assert.ok(!volume.has('note', id));
  assertHere();
  // For a while after a failure the volume refuses puts.
  await eventually('the volume accepts puts', () =>
    volume.put([note], signal, 'later').then(
      () => true,
      (error: unknown) => (assert.ok(isRonError(error, 'not_ready')), false),
    ),
  );
  assert.equal(await volume.get('note', id, signal), undefined);
  await volume.sync(signal);
  assert.deepEqual(Buffer.from((await volume.get('note', id, signal))!.payload), BODY);
});
