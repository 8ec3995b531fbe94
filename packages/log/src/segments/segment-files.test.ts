/** Read descriptors: with more segments than may be open, and with failing closes. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { tempDirFor } from '@ron/testkit';
import { realFileSystem, type File, type FileSystem } from '../disk/file-system.ts';
import { SegmentFiles } from './segment-files.ts';

const isLinux = process.platform === 'linux';

test('a segment that is read without waiting is not the one that is closed when too many are open', async (t) => {
  const dir = tempDirFor(t);
  const files = new SegmentFiles(realFileSystem, dir);
  const into = Buffer.alloc(1);
  for (let segment = 1; segment <= 135; segment++) {
    const file = await files.create(segment);
    await file.write([Buffer.from('x')], 0);
    await file.close();
    assert.equal(await files.read(segment, into, 1, 0), 1);
    const now = files.readNow(1, into, 1, 0);
    assert.equal(now, isLinux ? 1 : undefined, `segment 1 is open though ${segment - 1} were read since`);
  }
  const removed = files.remove(1);
  assert.equal(files.readNow(1, into, 1, 0), undefined, 'a segment that is being removed is not read');
  await removed;
  assert.equal(files.readNow(1, into, 1, 0), undefined);
  await files.close();
  assert.equal(files.readNow(2, into, 1, 0), undefined);
});

test('a read descriptor that cannot be closed fails neither a removal nor the close', async (t) => {
  const failing: FileSystem = Object.assign(Object.create(realFileSystem) as FileSystem, {
    open: async (path: string, access: 'read' | 'write') => {
      const file = await realFileSystem.open(path, access);
      const close = async (): Promise<void> => {
        await file.close();
        throw Object.assign(new Error('EIO'), { code: 'EIO' });
      };
      return Object.assign(Object.create(file) as File, { read: file.read.bind(file), close });
    },
  });
  const files = new SegmentFiles(failing, tempDirFor(t));
  const into = Buffer.alloc(1);
  for (const segment of [1, 2]) {
    await (await files.create(segment)).close();
    assert.equal(await files.read(segment, into, 1, 0), 0);
  }
  await files.remove(1);
  assert.deepEqual(files.numbers(), [2]);
  await files.close();
});
