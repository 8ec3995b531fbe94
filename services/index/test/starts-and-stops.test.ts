import assert from 'node:assert/strict';
import { access } from 'node:fs/promises';
import { test } from 'node:test';
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
