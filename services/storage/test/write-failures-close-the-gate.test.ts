import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LocalVolume, RecordType } from '@ron/cas';
import { NEVER } from '@ron/kernel';
import { tempDirFor } from '@ron/testkit';
import { WriteProbe } from '../src/volumes/write-probe.ts';
import { FaultyDisk } from './faulty-disk.ts';

test('a write that fails again after a probe has disproved the failure is a problem again', async (t) => {
  const disk = new FaultyDisk();
  const dir = tempDirFor(t);
  await using volume = await LocalVolume.open({ dir, fs: disk.fs!, signal: NEVER });
  const probe = new WriteProbe(volume, dir);
  const write = (id: number): Promise<void> =>
    volume.put([{ type: RecordType.chunk, id: Buffer.alloc(32, id), payload: Buffer.from('a') }], NEVER);
  disk.fail('EROFS', 'create', 'write', 'sync');
  for (const id of [1, 2]) {
    await assert.rejects(write(id));
    assert.match(probe.problem ?? '', /read-only/, `failure ${id}`);
    await probe.probe();
    assert.equal(probe.problem, undefined, 'the directory itself is writable');
  }
  disk.mend();
});
