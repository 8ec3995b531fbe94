import assert from 'node:assert/strict';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { CrashFileSystem } from '@ron/log/testing';
import { tempDirFor } from '@ron/testkit';
import { KnownVolumes } from './known-volumes.ts';

const A = { id: 'aaaa', item: '/mnt/a' };
const B = { id: 'bbbb', item: '/mnt/b@domain=rack' };

async function temporary(t: TestContext): Promise<string> {
  const dir = tempDirFor(t);
  return dir;
}

test('volumes stay known over restarts until they are forgotten', async (t) => {
  const path = join(await temporary(t), 'node', 'volumes.json');
  const first = await KnownVolumes.open(path);
  assert.deepEqual(first.volumes, []);
  await first.remember([B, A]);
  assert.deepEqual((await KnownVolumes.open(path)).volumes, [A, B]);
  const second = await KnownVolumes.open(path);
  await second.remember([{ ...A, item: '/srv/a' }]);
  assert.deepEqual((await KnownVolumes.open(path)).volumes, [{ ...A, item: '/srv/a' }, B]);
  await second.forget('aaaa');
  assert.deepEqual((await KnownVolumes.open(path)).volumes, [B]);
});

test('a damaged file fails the start and is left as it is', async (t) => {
  const path = join(await temporary(t), 'volumes.json');
  await writeFile(path, '{"version": 1, "volumes": [');
  await assert.rejects(KnownVolumes.open(path), { code: 'not_ready' });
  assert.equal(await readFile(path, 'utf8'), '{"version": 1, "volumes": [');
});

test('a file that cannot be written is a problem, not a failure, and the next change writes it', async (t) => {
  const dir = await temporary(t);
  const path = join(dir, 'volumes.json');
  await mkdir(`${path}.tmp`);
  const known = await KnownVolumes.open(path);
  await known.remember([A]);
  assert.match(known.problem ?? '', /cannot write/);
  assert.deepEqual(known.volumes, [A]);
  await rm(`${path}.tmp`, { recursive: true });
  await known.remember([B]);
  assert.equal(known.problem, undefined);
  assert.deepEqual((await KnownVolumes.open(path)).volumes, [A, B]);
});

test('a power cut leaves the old list or the new one', async () => {
  const fs = new CrashFileSystem();
  const path = '/node/volumes.json';
  const known = await KnownVolumes.open(path, fs);
  await known.remember([A]);
  const after_first = fs.operations;
  await known.remember([B]);
  let seen = 0;
  for (let at = after_first; at <= fs.operations; at++) {
    for (const image of fs.imagesAt(at, 64, () => 0.5)) {
      const { volumes } = await KnownVolumes.open(path, new CrashFileSystem(image));
      assert.ok(volumes.length === 1 || volumes.length === 2, JSON.stringify(volumes));
      seen += 1;
    }
  }
  assert.ok(seen > 3);
});
