/** A stop lets repair finish its queued jobs within the deadline; the others are aborted and counted. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { bytesOf, eventually, KIB, removeDir } from '@ron/testkit';
import { startService, type TestService } from './support.ts';

/** Three directories, one of them lost, and repairs that wait in the queue. */
async function withRepairs(pacing: string): Promise<TestService> {
  const flags = [`--durability.repair_pacing=${pacing}`, '--durability.repair_workers=2', '--drain_deadline=2s'];
  const service = await startService({ dirs: ['a', 'b', 'c'], flags });
  // More than may be taken at once before the pace counts.
  for (let index = 0; index < 24; index++) await service.put(bytesOf(256 * KIB, index + 1));
  await removeDir(join(service.dir, 'b'));
  await eventually('repairs wait', async () => (await service.metric('queue_depth{queue="repair"}')) > 0);
  return service;
}

test('repairs that can be done in time are done before the stop', async () => {
  await using service = await withRepairs('40MiB/s');
  await service.storage.drain();
  assert.equal(await service.metric('queue_depth{queue="repair"}'), 0);
  assert.ok((await service.metric('repairs_total{result="repaired"}')) > 0);
  assert.equal(await service.metric('tasks_aborted_total{kind="repair_pool"}'), 0);
});

test('repairs that would take longer than the deadline are cut and counted', async () => {
  await using service = await withRepairs('64KiB/s');
  const began_ms = performance.now();
  await service.storage.drain();
  const took_ms = performance.now() - began_ms;
  assert.ok(took_ms < 6000, `${took_ms} ms`);
  // [storage I-6]
  assert.equal(await service.metric('tasks_aborted_total{kind="repair_pool"}'), 2);
  assert.equal(await service.metric('tasks_aborted_total{kind="repair_planner"}'), 0);
});
