import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isRonError } from '@ron/kernel';
import type { FileSystem } from '@ron/log';
import { CrashFileSystem } from '@ron/log/testing';
import fc from 'fast-check';
import { LocalVolume } from './local-volume.ts';
import { RecordType, type NewRecord } from '../index.ts';
import { decodeSuperblock, encodeSuperblock, legacyVolumeId, readSuperblock, volumeIdBytes } from './superblock.ts';
import { noteId } from './volume-identity.ts';

const { signal } = new AbortController();
const DIR = '/v';
const open = (fs: FileSystem): Promise<LocalVolume> => LocalVolume.open({ dir: DIR, fs, signal });
const note = (value: unknown): NewRecord => ({
  type: RecordType.note,
  id: noteId('roster'),
  payload: Buffer.from(JSON.stringify(value)),
});

/** The files without the superblock, as the previous version left them. */
const withoutSuperblock = (disk: CrashFileSystem): Map<string, Uint8Array> =>
  new Map([...disk.files()].filter(([path]) => path !== `${DIR}/superblock`));

test('a superblock is read as it was written, and other bytes are refused', () => {
  const superblocks = fc.record({ id: fc.uuid(), epoch: fc.nat(), former: fc.string() }, { noNullPrototype: true });
  fc.assert(fc.property(superblocks, (each) => assert.deepEqual(decodeSuperblock(encodeSuperblock(each)), each)));
  fc.assert(
    fc.property(superblocks, fc.nat(), fc.integer({ min: 1, max: 255 }), (each, at, flip) => {
      const bytes = encodeSuperblock(each);
      bytes[at % bytes.length]! ^= flip;
      assert.equal(decodeSuperblock(bytes), undefined);
    }),
  );
  fc.assert(fc.property(fc.uint8Array(), (bytes) => assert.equal(decodeSuperblock(bytes), undefined)));
});

test('ids that are derived from names are UUIDs, the same for the same name', () => {
  assert.equal(legacyVolumeId('/mnt/a'), legacyVolumeId('/mnt/a'));
  assert.notEqual(legacyVolumeId('/mnt/a'), legacyVolumeId('/mnt/b'));
  assert.match(legacyVolumeId('/mnt/a'), /^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.throws(() => volumeIdBytes('/mnt/a'), /is not a volume id/);
});

test('at every crash point the superblock is the old one or the new one: the id stays, the epoch never goes back', async () => {
  const disk = new CrashFileSystem();
  /** Operations so far, and the epoch that was claimed then. */
  const claimed: { at: number; epoch: number }[] = [];
  let id = '';
  for (let epoch = 1; epoch <= 3; epoch++) {
    const volume = await open(disk);
    assert.equal(volume.epoch, epoch);
    if (epoch > 1) assert.equal(volume.id, id);
    id = volume.id;
    claimed.push({ at: disk.operations, epoch });
    await volume.put([note(epoch)], signal);
    await volume.close();
  }
  for (let at = 0; at <= disk.operations; at++) {
    const least = claimed.findLast((each) => each.at <= at)?.epoch ?? 0;
    for (const files of disk.imagesAt(at, 16, Math.random)) {
      const image = new CrashFileSystem(files);
      const found = await readSuperblock(image, DIR);
      if (found === undefined) assert.equal(least, 0, 'a superblock was lost');
      else {
        assert.equal(found.id, id);
        assert.ok(found.epoch === least || found.epoch === least + 1, `epoch ${found.epoch} after ${least}`);
      }
      const volume = await open(image);
      assert.ok(volume.epoch > least, 'an epoch was used twice');
      if (least > 0) assert.equal(volume.id, id);
      await volume.close();
    }
  }
});

test('a damaged superblock is an error with the action to take, and nothing is written', async () => {
  const disk = new CrashFileSystem();
  await (await open(disk)).close();
  disk.damage(`${DIR}/superblock`, (bytes) => bytes.subarray(0, 20));
  const before = disk.files();
  await assert.rejects(open(disk), (error) => {
    assert.ok(isRonError(error, 'not_ready'));
    assert.match(error.message, /superblock is damaged.*restore it from a backup, or delete it/);
    return true;
  });
  assert.deepEqual(disk.files(), before);
});

test('a directory of the previous version gets the id of its name in the set', async () => {
  const disk = new CrashFileSystem();
  const volume = await open(disk);
  await volume.put([note({ number: 1, id: 'x', current: ['d1'], holder: 'd1' })], signal);
  await volume.close();
  const former = new CrashFileSystem(withoutSuperblock(disk));
  for (const epoch of [1, 2]) {
    const upgraded = await open(former);
    assert.deepEqual([upgraded.id, upgraded.epoch], [legacyVolumeId('d1'), epoch]);
    await upgraded.close();
  }
  assert.equal((await readSuperblock(former, DIR))?.former, 'd1');
});

test('a directory of the previous version that never was in a set gets the id of its path', async () => {
  const disk = new CrashFileSystem();
  const former = await open(disk);
  await former.put([{ type: RecordType.pin, id: noteId('any'), payload: new Uint8Array(0) }], signal);
  await former.close();
  const volume = await open(new CrashFileSystem(withoutSuperblock(disk)));
  assert.equal(volume.id, legacyVolumeId(DIR));
  await volume.close();
});

test('a deleted superblock is rebuilt from the log, with the epoch that was last noted', async () => {
  const disk = new CrashFileSystem();
  const volume = await open(disk);
  const { id } = volume;
  await volume.put([note({ format: 2, holder: id, seen: { [id]: { dir: DIR, epoch: 7 } } })], signal);
  await volume.close();
  const rebuilt = await open(new CrashFileSystem(withoutSuperblock(disk)));
  assert.deepEqual([rebuilt.id, rebuilt.epoch_before, rebuilt.epoch], [id, 7, 8]);
  await rebuilt.close();
});

test('while the disk refuses a new epoch, records are read and none is appended', async () => {
  const disk = new CrashFileSystem();
  const first = await open(disk);
  await first.put([note('kept')], signal);
  await first.close();
  for (const code of ['EROFS', 'ENOSPC', 'EIO']) {
    let isBroken = true;
    const faulty = new CrashFileSystem(disk.files(), {
      before: (operation, path) => {
        const isSuperblock = path.includes('superblock') && operation === 'create';
        if (isBroken && isSuperblock) throw Object.assign(new Error(code), { code });
      },
    });
    const volume = await open(faulty);
    assert.deepEqual([volume.id, volume.epoch], [first.id, 1]);
    assert.ok(await volume.get('note', noteId('roster'), signal));
    const refused = volume.put([note('refused')], signal);
    await assert.rejects(refused, (error) => isRonError(error, code === 'ENOSPC' ? 'storage_full' : 'not_ready'));
    assert.notEqual(volume.state.condition, 'ok');
    isBroken = false;
    // A refused put claims the directory for those that follow.
    await assert.rejects(volume.put([note('refused')], signal));
    await new Promise((resolve) => void setImmediate(resolve));
    await volume.put([note('taken')], signal);
    assert.equal(volume.state.condition, 'ok');
    await volume.close();
  }
});

test('a directory that is refused by its identity is not changed', async () => {
  const disk = new CrashFileSystem();
  const { id } = await open(disk).then(async (volume) => {
    await volume.close();
    return volume;
  });
  const before = disk.files();
  const accept = (found: { id: string; epoch: number }): void => {
    throw new Error(`${found.id} ${found.epoch}`);
  };
  const opened = LocalVolume.open({ dir: DIR, fs: disk, accept, signal });
  await assert.rejects(opened, new RegExp(`${id} 1`));
  assert.deepEqual(disk.files(), before);
});
