/** An upload that is under way loses nothing that was acknowledged when a volume goes, whichever it is. */
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { LocalVolume, ObjectStore, Uploads, type JournalPlace } from '@ron/cas';
import { formatAddress } from '@ron/proto';
import { Directories } from '../src/testing/directories.ts';
import type { VolumeSet } from '../src/set/volume-set.ts';

const { signal } = new AbortController();
const NAMES = ['a', 'b', 'c'];
const BODY = Buffer.alloc(300_000, 'an upload ');

async function* bodyOf(bytes: Buffer): AsyncGenerator<Uint8Array, void, void> {
  yield bytes;
}

async function uploadsOn(set: VolumeSet): Promise<Uploads> {
  const places = (): JournalPlace[] =>
    set.members.flatMap(({ volume, isReadable }) =>
      isReadable && volume instanceof LocalVolume
        ? [{ dir: join(volume.dir, 'uploads'), fs: volume.log.files.fs }]
        : [],
    );
  for (const { dir, fs } of places()) await fs.makeDir(dir);
  const store = new ObjectStore({ volume: set, cache_bytes: 0 });
  return await Uploads.open({ store, places: { all: places, now: places, copies: 2, copies_min: 2 } });
}

for (const gone of NAMES) {
  test(`${gone} goes while the process is stopped`, async () => {
    using directories = new Directories();
    let id: string;
    {
      await using set = await directories.open(NAMES, { replication_factor: 2 });
      await using uploads = await uploadsOn(set);
      ({ id } = await uploads.create({ size: BODY.length }));
      const { offset } = await uploads.append({ id, offset: 0, body: bodyOf(BODY.subarray(0, 200_000)), signal });
      assert.equal(offset, 200_000);
    }
    rmSync(directories.dir(gone), { recursive: true });
    const left = NAMES.filter((name) => name !== gone);
    await using set = await directories.open(left, { replication_factor: 2 });
    await using uploads = await uploadsOn(set);
    assert.equal(uploads.status(id)?.offset, 200_000);
    const done = await uploads.append({ id, offset: 200_000, body: bodyOf(BODY.subarray(200_000)), signal });
    assert.equal(done.address, formatAddress(blake3(BODY)));
  });

  test(`${gone} goes under the process`, async () => {
    using directories = new Directories();
    await using set = await directories.open(NAMES, { replication_factor: 2 });
    await using uploads = await uploadsOn(set);
    const { id } = await uploads.create({ size: BODY.length });
    await uploads.append({ id, offset: 0, body: bodyOf(BODY.subarray(0, 200_000)), signal });
    rmSync(directories.dir(gone), { recursive: true });
    set.lifecycle.lose(gone, 'test');
    const done = await uploads.append({ id, offset: 200_000, body: bodyOf(BODY.subarray(200_000)), signal });
    assert.equal(done.address, formatAddress(blake3(BODY)));
  });
}
