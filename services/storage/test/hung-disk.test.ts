/**
 * A real disk that does not answer: its segments are pipes without a writer, and opening one hangs in the operating
 * system, with a thread of the process. Everything else goes on.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdir, rename, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { bytesOf, KIB, tempDir } from '@ron/testkit';
import { addressOf, authorizationFrom } from '@ron/testkit/service';
import { keysIn, startProcess } from './process.ts';

/** Puts pipes in the place of all segments but the one that is being written. How many. */
async function hang(dir: string): Promise<number> {
  const segments = join(dir, 'segments');
  const names = (await readdir(segments)).toSorted().slice(0, -1);
  for (const name of names) {
    const path = join(segments, name);
    assert.equal(spawnSync('mkfifo', [`${path}.pipe`]).status, 0);
    await unlink(path);
    await rename(`${path}.pipe`, path);
  }
  return names.length;
}

test('reads, writes, plans, /readyz, /metrics and the stop go on while a disk hangs', async () => {
  await using temp = await tempDir();
  const headers = await authorizationFrom(keysIn(temp.path), 'storage');
  const dirs = ['a', 'b', 'c'].map((name) => join(temp.path, name));
  const flags = [
    '--server.bind=127.0.0.1:0',
    `--data_dirs=${dirs.join(',')}`,
    `--auth.key_file=${keysIn(temp.path)}`,
    '--durability.replication_factor=2',
    '--storage.segment_bytes=4MiB',
    '--storage.cache_bytes=1MiB',
    '--storage.fast_path=false',
  ];
  const objects = Array.from({ length: 60 }, (_, index) => bytesOf(600 * KIB, index + 1));
  const pathOf = (bytes: Buffer): string => `/o/${addressOf(bytes)}`;
  {
    await using storage = await startProcess({ flags });
    for (const bytes of objects) {
      const { status } = await storage.send('PUT', pathOf(bytes), { body: bytes, headers });
      assert.equal(status, 201);
    }
    await storage.stop();
  }
  // A new process has no segment open.
  await using storage = await startProcess({ flags });
  const pipes = await hang(dirs[0]!);
  assert.ok(pipes > 4, `${pipes} segments hang: more than Node has threads`);
  const began_ms = performance.now();
  const replies = await Promise.all(objects.map((bytes) => storage.send('GET', pathOf(bytes))));
  for (const [index, reply] of replies.entries()) {
    assert.equal(reply.status, 200, reply.text.slice(0, 300));
    assert.ok(reply.body.equals(objects[index]!));
  }
  for (let key = 100; key < 110; key++) {
    const bytes = bytesOf(300 * KIB, key);
    const { status, text } = await storage.send('PUT', pathOf(bytes), { body: bytes, headers });
    assert.equal(status, 201, text);
  }
  assert.equal((await storage.send('GET', '/readyz')).status, 200);
  assert.ok((await storage.metric('rf_target')) === 2);
  // [storage I-4]
  assert.ok(performance.now() - began_ms < 60_000);
  const stopped_ms = performance.now();
  await storage.stop();
  assert.ok(performance.now() - stopped_ms < 30_000, 'it stops');
  assert.ok(storage.logged('drained'));
});
