/** The steps on the disk of an upload and of a removal, in their order, and with failures of each. */
import assert from 'node:assert/strict';
import { mkdir, readdir, readFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { test } from 'node:test';
import { DiskGate, realFileSystem, type FileSystem } from '@ron/log';
import { tempDir } from '@ron/testkit';
import { assertRefusal } from '@ron/testkit/service';
import { PackDirectory, type UploadFile } from '../../src/packs/pack-directory.ts';
import { startService } from '../support.ts';
import { mountPack, packsDir, putPack, somePmtiles, untilReady } from './registry-support.ts';

/** The real disk; it records the calls that make bytes and names durable. */
function recordingDisk(steps: string[], failing = ''): FileSystem {
  return {
    ...realFileSystem,
    create: async (path) => {
      const file = await realFileSystem.create(path);
      const sync = (): Promise<void> => {
        steps.push('sync the file');
        return file.sync();
      };
      return { write: file.write.bind(file), sync, close: file.close.bind(file) } as unknown as typeof file;
    },
    rename: async (from, to) => {
      if (basename(to) === failing) throw Object.assign(new Error('the rename fails'), { code: 'EIO' });
      steps.push(`rename to ${basename(to)}`);
      await realFileSystem.rename(from, to);
    },
    remove: async (path) => {
      steps.push(`remove ${basename(path)}`);
      await realFileSystem.remove(path);
    },
    syncDir: async (dir) => {
      steps.push('sync the directory');
      await realFileSystem.syncDir(dir);
    },
  };
}

const directoryOf = (path: string, disk: FileSystem): PackDirectory =>
  new PackDirectory(path, disk, new DiskGate({ calls_max: 2, late_ms: 5000 }), 1000);

async function uploadOf(directory: PackDirectory, text: string): Promise<UploadFile> {
  const upload = await directory.createUpload('a');
  await upload.file.write([Buffer.from(text)], 0);
  const sidecar = await realFileSystem.create(upload.sidecar);
  await sidecar.write([Buffer.from(`sidecar of ${text}`)], 0);
  await sidecar.close();
  return upload;
}

test('an upload is synced before it gets its name, and its name before the upload is answered', async () => {
  await using temp = await tempDir();
  const steps: string[] = [];
  const directory = directoryOf(temp.path, recordingDisk(steps));
  const upload = await uploadOf(directory, 'a pack');
  await directory.install(upload, 'a.pmtiles');
  assert.deepEqual(steps, ['sync the file', 'rename to a.pmtiles', 'rename to a.pmtiles.b3', 'sync the directory']);
  await upload.file.close();
  steps.length = 0;
  await directory.remove('a.pmtiles');
  assert.deepEqual(steps, ['remove a.pmtiles', 'remove a.pmtiles.b3', 'sync the directory']);
});

test('a rename that fails leaves the earlier pack and its sidecar', async () => {
  await using temp = await tempDir();
  const first = directoryOf(temp.path, realFileSystem);
  const earlier = await uploadOf(first, 'one');
  await first.install(earlier, 'a.pmtiles');
  await earlier.file.close();
  const failing = directoryOf(temp.path, recordingDisk([], 'a.pmtiles'));
  const upload = await uploadOf(failing, 'two');
  await assert.rejects(failing.install(upload, 'a.pmtiles'), /rename/);
  await failing.discard(upload);
  assert.deepEqual((await readdir(temp.path)).toSorted(), ['a.pmtiles', 'a.pmtiles.b3']);
  assert.equal(await readFile(join(temp.path, 'a.pmtiles.b3'), 'utf8'), 'sidecar of one');
});

test('an upload onto a directory is refused with the reason, and nothing is kept', async () => {
  await using edge = await startService();
  await untilReady(edge);
  await mkdir(join(packsDir(edge), 'a.pmtiles'));
  const reply = await putPack(edge, 'a', somePmtiles(1));
  assertRefusal(reply, 409, 'conflict');
  assert.match(reply.problem!.detail, /a.pmtiles is a directory/);
  assert.deepEqual(await readdir(packsDir(edge)), ['a.pmtiles']);
  await mountPack(edge, 'b', somePmtiles(1));
});
