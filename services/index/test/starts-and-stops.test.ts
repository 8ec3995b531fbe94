import assert from 'node:assert/strict';
import { access } from 'node:fs/promises';
import { test } from 'node:test';
import { formatAddress } from '@ron/proto';
import { eventually, tempDir } from '@ron/testkit';
import { AMNESIA, startService } from './support.ts';

test('health, readiness, metrics, version and OpenAPI are answered', async () => {
  await using service = await startService();
  for (const path of ['/healthz', '/readyz', '/metrics', '/version', '/openapi.json'])
    assert.equal((await service.send('GET', path)).status, 200, path);
});

test('[index I-12] in amnesia mode no directory is created', async () => {
  await using service = await startService({ flags: AMNESIA });
  assert.equal((await service.send('GET', '/readyz')).status, 200);
  await assert.rejects(access(service.dir), { code: 'ENOENT' });
});

test('[index I-2] the publisher and the janitors run once, and everything that is declared is built', async () => {
  await using service = await startService({ flags: AMNESIA });
  const { runtime } = service.index;
  const { tasks } = runtime.declaration;
  for (const kind of ['publisher', 'cache_janitor', 'breaker_janitor'] as const) {
    assert.equal(tasks[kind].count, 1);
    assert.ok(!('config_key' in tasks[kind]), `${kind}: no key changes its count`);
  }
  assert.equal((await service.call('POST', '/admin/reindex')).status, 202);
  runtime.deadline('read');
  runtime.deadline('write');
  assert.deepEqual(runtime.unbuilt(), []);
});

test('the keys of cache.warmup_keys are cached after the start; those without an answer do no harm', async () => {
  const address = formatAddress(new Uint8Array(32).fill(1));
  await using temp = await tempDir();
  const flags = ['--index.storage_url=http://127.0.0.1:7101', '--cache.ttl_s=3600'];
  {
    await using service = await startService({ dir: temp.path, flags });
    const entries = [{ address, size: 1, media_type: 'text/plain' }];
    assert.equal((await service.call('POST', '/announce', { entries })).status, 200);
  }
  await using service = await startService({
    dir: temp.path,
    flags: [...flags, `--cache.warmup_keys=name:unknown,${address}`],
  });
  await eventually('warm', async () => {
    const isFound = (await service.metric('index_lookups_total{result="db"}')) === 1;
    return isFound && (await service.metric('queue_depth{queue="cache_in"}')) === 0;
  });
  const { json } = await service.send('GET', `/resolve/${address}`);
  assert.equal(json.source, 'cache', 'the first request is answered from the cache');
});
