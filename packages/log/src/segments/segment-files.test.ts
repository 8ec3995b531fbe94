/** Reads from the page cache, with more segments than may be open. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { tempDirFor } from '@ron/testkit';
import { realFileSystem } from '../disk/file-system.ts';
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
