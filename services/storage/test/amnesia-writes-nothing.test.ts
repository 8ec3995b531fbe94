/** Amnesia: the same surface without a disk. The file system is watched from outside while everything is used. */
import assert from 'node:assert/strict';
import { watch } from 'node:fs';
import { access, mkdir, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { bytesOf, eventually, filesOpenForWriting, KIB, MIB, tempDir, hasWritten } from '@ron/testkit';
import { addressOf, authorizationFrom, type ServiceProcess } from '@ron/testkit/service';
import { keysIn, startProcess } from './process.ts';

/** An upload in two requests. */
async function upload(storage: ServiceProcess, headers: { authorization: string }, bytes: Buffer): Promise<void> {
  const tus = { ...headers, 'tus-resumable': '1.0.0', 'content-type': 'application/offset+octet-stream' };
  const created = await storage.send('POST', '/uploads', {
    headers: { ...tus, 'upload-length': String(bytes.length) },
  });
  for (const [start, end] of [
    [0, 1_000_000],
    [1_000_000, bytes.length],
  ] as const) {
    const init = { body: bytes.subarray(start, end), headers: { ...tus, 'upload-offset': String(start) } };
    const reply = await storage.send('PATCH', created.headers.location!, init);
    assert.equal(reply.status, 204, reply.text);
  }
  assert.ok((await storage.send('GET', `/o/${addressOf(bytes)}`)).body.equals(bytes));
}

test('nothing is written to any disk', { skip: process.platform !== 'linux' && 'needs /proc' }, async () => {
  await using temp = await tempDir();
  const at = (name: string): string => join(temp.path, name);
  for (const name of ['cwd', 'tmp', 'home']) await mkdir(at(name));
  const headers = await authorizationFrom(keysIn(temp.path), 'storage');
  const data = at('data');
  await using storage = await startProcess({
    flags: ['--amnesia.enabled=true', `--data_dirs=${data}`, `--auth.key_file=${keysIn(temp.path)}`],
    cwd: at('cwd'),
    env: { TMPDIR: at('tmp'), HOME: at('home') },
  });
  const seen: string[] = [];
  const watchers = [temp.path, at('cwd'), at('tmp'), at('home')].map((dir) =>
    watch(dir, (event, name) => void seen.push(`${event} ${dir}/${name}`)),
  );
  try {
    for (const size of [0, 100, 64 * KIB, 5 * MIB]) {
      const bytes = bytesOf(size, size + 1);
      const path = `/o/${addressOf(bytes)}`;
      assert.equal((await storage.send('PUT', path, { body: bytes, headers })).status, 201);
      assert.equal((await storage.send('POST', '/o', { body: bytes, headers })).status, 200);
      for (let time = 0; time < 3; time += 1) assert.ok((await storage.send('GET', path)).body.equals(bytes));
      assert.equal((await storage.send('GET', `${path}/manifest`)).status, 200);
      assert.equal((await storage.send('GET', `${path}?proof=bao`)).status, 200);
      assert.equal((await storage.send('PUT', `${path}/pin`, { headers })).status, 204);
      assert.equal((await storage.send('DELETE', `${path}/pin`, { headers })).status, 204);
      assert.equal((await storage.send('PUT', path, { body: `${size}`, headers })).status, 409);
      assert.deepEqual(await filesOpenForWriting(storage.pid), []);
    }
    await upload(storage, headers, bytesOf(2 * MIB, 9));
    assert.equal((await storage.send('POST', '/admin/compact', { headers })).status, 202);
    // More than one flush of anything that flushes by time.
    await new Promise((resolve) => setTimeout(resolve, 1500));
    assert.equal(await hasWritten(storage.pid), false);
    assert.deepEqual(await filesOpenForWriting(storage.pid), []);
    assert.equal(await storage.stop(), 0);
    assert.deepEqual(seen, []);
    await assert.rejects(access(data), { code: 'ENOENT' });
  } finally {
    for (const watcher of watchers) watcher.close();
  }
});

test('the watch sees a service that does write', { skip: process.platform !== 'linux' && 'needs /proc' }, async () => {
  await using temp = await tempDir();
  const data = join(temp.path, 'data');
  const headers = await authorizationFrom(keysIn(temp.path), 'storage');
  await using storage = await startProcess({
    flags: [`--data_dirs=${data}`, `--auth.key_file=${keysIn(temp.path)}`],
  });
  // More than the metadata that `hasWritten` allows.
  assert.equal((await storage.send('POST', '/o', { body: bytesOf(MIB, 1), headers })).status, 201);
  await eventually('it has a file open', async () => (await filesOpenForWriting(storage.pid)).length > 0);
  assert.equal(await hasWritten(storage.pid), true);
  await access(data);
});

test('a restart forgets everything', async () => {
  await using temp = await tempDir();
  const headers = await authorizationFrom(keysIn(temp.path), 'storage');
  const flags = ['--amnesia.enabled=true', `--auth.key_file=${keysIn(temp.path)}`];
  const bytes = bytesOf(1000);
  for (let time = 0; time < 2; time += 1) {
    await using storage = await startProcess({ flags });
    assert.equal((await storage.send('PUT', `/o/${addressOf(bytes)}`, { body: bytes, headers })).status, 201);
  }
});

test('a key file that is missing is not made', async () => {
  await using temp = await tempDir();
  const flags = ['--amnesia.enabled=true', `--auth.key_file=${keysIn(temp.path)}`];
  const started = startProcess({ flags });
  started.then(
    (storage) => storage.kill(),
    () => undefined,
  );
  await assert.rejects(started, /there is no key file/);
  assert.deepEqual(await readdir(temp.path), []);
});
