import assert from 'node:assert/strict';
import { access } from 'node:fs/promises';
import { test } from 'node:test';
import { eventually } from '@ron/testkit';
import { REASON_NAMES } from '../src/reasons.ts';
import { AMNESIA, startService } from './support.ts';

test('health, readiness, metrics, version and OpenAPI are answered', async () => {
  await using service = await startService();
  const isReady = async (): Promise<boolean> => (await service.send('GET', '/readyz')).status === 200;
  await eventually('the directory of packs is read', isReady);
  for (const path of ['/healthz', '/metrics', '/version', '/openapi.json'])
    assert.equal((await service.send('GET', path)).status, 200, path);
});

test('in amnesia mode no directory is created', async () => {
  await using service = await startService({ flags: AMNESIA });
  await eventually('it is ready', async () => (await service.send('GET', '/readyz')).status === 200);
  await assert.rejects(access(service.dir), { code: 'ENOENT' });
});

test('all eight reasons are exported before the first refusal, and no other', async () => {
  await using service = await startService({ flags: AMNESIA });
  const series = (await service.metrics.text()).matchAll(/^edge_rejects_total\{reason="(\w+)"\} 0$/gm);
  assert.deepEqual(new Set(Array.from(series, ([, reason]) => reason)), new Set(REASON_NAMES));
});

test('[edge I-2] [edge I-8] the single writers run once, and everything that is declared is built', async () => {
  await using service = await startService();
  const { runtime } = service.edge;
  const { tasks } = runtime.declaration;
  for (const kind of ['pack_verifier', 'evictor', 'fill_log'] as const) {
    assert.equal(tasks[kind].count, 1);
    assert.ok(!('config_key' in tasks[kind]), `${kind}: no key changes its count`);
  }
  for (const { kind, live, wanted } of runtime.supervisor.health()) assert.equal(live, wanted, kind);
  // Deadlines are made when they are needed.
  for (const name of ['read', 'write', 'pack', 'pack_read', 'fill_log', 'checkpoint'] as const) runtime.deadline(name);
  assert.deepEqual(runtime.unbuilt(), []);
});

test('a change of the mode is reported once, and the gauge follows it', async () => {
  await using service = await startService();
  assert.equal(await service.metric('edge_live'), 0);
  for (let i = 0; i < 2; i += 1) await service.reload(['--edge.mode=live']);
  assert.equal(await service.metric('edge_live'), 1);
  const reports = (): number => service.lines.filter((line) => line.includes('mode changed')).length;
  await eventually('it is in the log', () => reports() === 1);
  await service.reload([]);
  assert.equal(await service.metric('edge_live'), 0);
  await eventually('the way back too', () => reports() === 2);
});
