/** Faults of the disk of the name log. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { installSched, RonError, sched } from '@ron/kernel';
import { realFileSystem, type File, type FileSystem } from '@ron/log';
import { eventually, tempDir } from '@ron/testkit';
import { nameSigner } from '../../src/publish/testing.ts';
import { ALICE, openNode } from './support.ts';

const alice = nameSigner();

/** The real disk, with a fault in the writes of the file `entries`. */
class FaultyDisk {
  fault: 'ENOSPC' | 'EIO' | 'EROFS' | 'hangs' | undefined;
  isHanging = false;
  readonly #released = Promise.withResolvers<void>();

  readonly fs: FileSystem = {
    ...realFileSystem,
    makeDir: (dir) => realFileSystem.makeDir(dir),
    create: async (path) => this.#watched(path, await realFileSystem.create(path)),
    open: async (path, access) => this.#watched(path, await realFileSystem.open(path, access)),
  };

  release(): void {
    this.fault = undefined;
    this.#released.resolve();
  }

  #watched(path: string, file: File): File {
    if (!path.endsWith(join('name-log', 'entries'))) return file;
    return Object.assign(Object.create(file) as File, {
      write: async (buffers: readonly Uint8Array[], position: number) => {
        if (this.fault === 'hangs') {
          this.isHanging = true;
          await this.#released.promise;
        }
        if (this.fault === 'ENOSPC' || this.fault === 'EROFS') throw failure(this.fault);
        await file.write(buffers, position);
      },
      sync: async () => {
        if (this.fault === 'EIO') throw failure('EIO');
        await file.sync();
      },
      read: (into: Uint8Array, length: number, position: number) => file.read(into, length, position),
      truncate: (bytes: number) => file.truncate(bytes),
      size: () => file.size(),
      close: () => file.close(),
    });
  }
}

const failure = (code: string): NodeJS.ErrnoException => Object.assign(new Error(code), { code });

test('a full, failing or read-only disk refuses a publish as a whole, and the next one succeeds', async () => {
  await using temp = await tempDir();
  const disk = new FaultyDisk();
  await using node = await openNode(temp.path, { fs: disk.fs });
  const one = alice.record('a');
  await node.publish(one);
  const two = alice.record('a', { after: one });
  for (const [fault, code] of [
    ['ENOSPC', 'storage_full'],
    ['EIO', 'not_ready'],
    ['EROFS', 'not_ready'],
  ] as const) {
    disk.fault = fault;
    await assert.rejects(node.publish(two), { code }, fault);
    await assert.rejects(node.publish(alice.record('b')), { code }, fault);
    assert.equal((await node.store.name(alice.key, 'a'))?.seq, 1, 'names resolve');
    assert.equal(node.names.log?.size, 1);
    disk.fault = undefined;
  }
  assert.equal((await node.publish(two)).isNew, true);
  assert.deepEqual([node.names.log?.size, node.store.applied.size, node.names.problem], [2, 2, undefined]);
});

test('[index I-5] a hung disk is reported; callers leave at their deadline, and a repetition finds the outcome', async () => {
  await using temp = await tempDir();
  const disk = new FaultyDisk();
  await using node = await openNode(temp.path, { fs: disk.fs });
  const real = sched;
  disk.fault = 'hangs';
  const record = alice.record('a');
  const caller = new AbortController();
  const publishing = node.names.publish(record.record, record.signature, ALICE, caller.signal);
  await eventually('the append has begun', () => disk.isHanging);
  caller.abort(new RonError('timeout', 'the budget is over'));
  await assert.rejects(publishing, { code: 'timeout' });
  assert.equal(node.names.problem, undefined);
  installSched({ ...real, now_ms: () => real.now_ms() + 3000 });
  const { problem } = node.names;
  installSched(real);
  assert.match(problem ?? '', /does not respond/);
  disk.release();
  await eventually('the append ends', () => node.names.log?.size === 1);
  assert.deepEqual([(await node.publish(record)).isNew, node.names.problem], [false, undefined]);
});
