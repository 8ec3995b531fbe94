/** A published configuration comes into force while storage runs, and not once it stops. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { isRonError } from '@ron/kernel';
import { bytesOf, eventually, removeDir } from '@ron/testkit';
import { assertRefusal, RawClient } from '@ron/testkit/service';
import { startService, type TestService } from './support.ts';

const FLAGS = ['--durability.repair_pacing=2MiB/s', '--drain_deadline=5s'];
const rateOf = ({ storage }: TestService): number => storage.maintenance.pacing.rate_bytes_per_s;
const dirsOf = async (service: TestService): Promise<string[]> => {
  const { volumes } = await service.ask('GET', '/admin/volumes');
  return (volumes as { name: string }[]).map(({ name }) => name.slice(service.dir.length + 1)).toSorted();
};

test('a published configuration is in force without a further call: directories, rates and deadlines', async () => {
  await using service = await startService({ dirs: ['a', 'b'], flags: FLAGS });
  assert.equal(service.storage.runtime.deadline('get').budget_ms, 2000);
  service.publish(['a', 'b', 'c'], ['--durability.repair_pacing=3MiB/s', '--storage.get_deadline=1500ms']);
  await eventually('the rate follows', () => rateOf(service) === 3 * 1024 * 1024);
  await eventually('the new directory is in use', async () => (await dirsOf(service)).join() === 'a,b,c');
  assert.equal(service.storage.runtime.deadline('get').budget_ms, 1500);
});

test('a configuration that is published while storage starts is not missed', async () => {
  await using service = await startService({ dirs: ['a', 'b'], flags: FLAGS, publishAtStart: ['a', 'b', 'c'] });
  await eventually('the new directory is in use', async () => (await dirsOf(service)).join() === 'a,b,c');
});

test('a drain applies no configuration and plans no repair; requests in hand are finished', async () => {
  await using service = await startService({ dirs: ['a', 'b', 'c'], flags: FLAGS });
  await service.put(bytesOf(100, 1));
  service.storage.maintenance.wake();
  await eventually('a plan was made', () => service.storage.maintenance.planned_ms !== undefined);
  const client = await RawClient.open(service.port);
  const { authorization } = await service.allow();
  client.head('POST', '/o', { authorization, 'content-length': 100_000 });
  client.socket.write(bytesOf(50_000, 2));
  await eventually('the upload is in hand', async () => (await service.metric('http_requests_inflight')) > 0);

  const drained = service.storage.drain();
  assertRefusal(await service.send('GET', '/admin/volumes', { headers: { authorization } }), 503, 'draining');
  const planned_ms = service.storage.maintenance.planned_ms;
  const plans = service.storage.maintenance.planner.report;
  await removeDir(join(service.dir, 'b'));
  service.storage.maintenance.wake();
  await assert.rejects(service.reload(['a', 'b'], ['--durability.repair_pacing=9MiB/s']), (error) =>
    isRonError(error, 'draining'),
  );
  client.socket.write(bytesOf(50_000, 3));
  await client.until(/^HTTP\/1\.1 201 /);
  await drained;
  assert.equal(rateOf(service), 2 * 1024 * 1024);
  assert.equal(service.storage.maintenance.planned_ms, planned_ms);
  assert.equal(service.storage.maintenance.planner.report, plans);
});

test('shutdown and config are declared, and built', async () => {
  await using service = await startService();
  const { channels } = service.storage.runtime.declaration;
  assert.deepEqual([channels.shutdown.kind, channels.config.kind], ['watch', 'watch']);
  const unbuilt = service.storage.runtime.unbuilt();
  assert.ok(!unbuilt.includes('channel shutdown') && !unbuilt.includes('channel config'), unbuilt.join());
});
