import assert from 'node:assert/strict';
import { access } from 'node:fs/promises';
import { test } from 'node:test';
import { REASON_NAMES } from '../src/reasons.ts';
import { AMNESIA, startService } from './support.ts';

test('health, readiness, metrics, version and OpenAPI are answered', async () => {
  await using service = await startService();
  for (const path of ['/healthz', '/readyz', '/metrics', '/version', '/openapi.json'])
    assert.equal((await service.send('GET', path)).status, 200, path);
});

test('in amnesia mode no directory is created', async () => {
  await using service = await startService({ flags: AMNESIA });
  assert.equal((await service.send('GET', '/readyz')).status, 200);
  await assert.rejects(access(service.dir), { code: 'ENOENT' });
});

test('all eight reasons are exported before the first refusal, and no other', async () => {
  await using service = await startService({ flags: AMNESIA });
  const series = (await service.metrics.text()).matchAll(/^edge_rejects_total\{reason="(\w+)"\} 0$/gm);
  assert.deepEqual(new Set(Array.from(series, ([, reason]) => reason)), new Set(REASON_NAMES));
});
