/** Amnesia: the same surface without a disk. The file system is watched from outside while everything is used. */
import assert from 'node:assert/strict';
import { watch } from 'node:fs';
import { access, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { formatAddress } from '@ron/proto';
import { eventually, filesOpenForWriting, tempDir, hasWritten } from '@ron/testkit';
import { signedDto } from '../src/publish/name-dto.ts';
import { nameSigner } from '../src/publish/testing.ts';
import { startProcess } from './process.ts';

test('[index I-12] nothing is written to any disk, and no DHT library is loaded', async () => {
  await using temp = await tempDir();
  const at = (name: string): string => join(temp.path, name);
  for (const name of ['cwd', 'tmp', 'home']) await mkdir(at(name));
  const { process: index, call } = await startProcess(temp.path, {
    flags: ['--amnesia.enabled=true', '--amnesia.purge_interval_ms=100'],
    cwd: at('cwd'),
    // Not the compile cache of the test run: Node writes to it.
    env: { TMPDIR: at('tmp'), HOME: at('home'), NODE_DISABLE_COMPILE_CACHE: '1' },
    reports: true,
  });
  await using _ = index;
  const seen: string[] = [];
  const watchers = [temp.path, at('cwd'), at('tmp'), at('home')].map((dir) =>
    watch(dir, (event, name) => void seen.push(`${event} ${dir}/${name}`)),
  );
  try {
    const address = formatAddress(new Uint8Array(32).fill(1));
    const record = nameSigner().record('docs/a', { value: address });
    const entries = [{ address, size: 1, media_type: 'text/plain' }];
    for (const [method, path, status, body] of [
      ['POST', '/announce', 200, { entries }],
      ['PUT', '/trust/docs', 204, { key: record.key }],
      ['PUT', '/names/docs/a', 201, signedDto(record)],
      ['POST', '/admin/pin', 204, { key: 'name:docs/a' }],
      ['GET', '/resolve/name:docs/a', 200],
      ['GET', `/providers/${address}`, 200],
      ['POST', '/admin/reindex', 202],
    ] as const)
      assert.equal((await call(method, path, body)).status, status, path);
    await eventually('a checkpoint is signed', async () => (await call('GET', '/log/checkpoint')).status === 200);
    // The purge counts as a call of the janitor; several have passed once the pinned name was refreshed after the reindex.
    await eventually('cached', async () => (await call('GET', '/resolve/name:docs/a')).json.source === 'cache');
    assert.deepEqual(await filesOpenForWriting(index.pid), []);
    assert.equal(await hasWritten(index.pid), false);
    assert.deepEqual(
      index.log.filter(({ msg }) => msg === 'loaded'),
      [],
    );
    assert.equal(await index.stop(), 0);
    assert.deepEqual(seen, []);
    await assert.rejects(access(at('data')), { code: 'ENOENT' });
  } finally {
    for (const watcher of watchers) watcher.close();
  }
});

test('with `join` the DHT is loaded after the start; without its network key the gate names the cause', async () => {
  await using temp = await tempDir();
  const missing = join(temp.path, 'network.key');
  const flags = ['--amnesia.enabled=true', '--dht.mode=join', `--dht.network_key_file=${missing}`];
  const { process: index, call } = await startProcess(temp.path, { flags, reports: true });
  await using _ = index;
  await eventually('libp2p is loaded', () => index.log.some(({ msg }) => msg === 'loaded'));
  await eventually('the gate dht is closed', async () => {
    const { status, json } = await call('GET', '/readyz');
    assert.equal(status, 200, 'the node serves its own names and objects');
    const { reason } = json.gates.find(({ gate }: { gate: string }) => gate === 'dht');
    return json.degraded.includes('dht') && reason.startsWith('the DHT cannot start: ');
  });
  const entries = [{ address: formatAddress(new Uint8Array(32).fill(2)), size: 1, media_type: 'text/plain' }];
  assert.equal((await call('POST', '/announce', { entries })).status, 200);
});
