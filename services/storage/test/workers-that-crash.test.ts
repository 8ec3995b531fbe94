/** A worker that crashes costs one request, which is answered; another worker takes its place. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bytesOf, eventually } from '@ron/testkit';
import { addressOf } from '@ron/testkit/service';
import { FaultyDisk } from './faulty-disk.ts';
import { startService } from './support.ts';

test('a worker that crashes while it writes, and one that crashes while it reads', async () => {
  const disk = new FaultyDisk();
  await using service = await startService({
    fs: disk.fs,
    flags: ['--storage.put_workers=1', '--storage.get_workers=1', '--storage.cache_bytes=1MiB'],
  });
  const headers = await service.allow();
  const { supervisor } = service.storage.runtime;
  const bytes = bytesOf(300_000);
  const path = `/o/${addressOf(bytes)}`;

  disk.hold('sync');
  const put = service.send('PUT', path, { body: bytes, headers });
  await eventually('it hangs in the disk', () => disk.waiting.sync > 0);
  supervisor.kill('put_pool', 0);
  const refused = await put;
  assert.ok(refused.status >= 500, `${refused.status}`);
  assert.notEqual(refused.problem, undefined);
  disk.release('sync');
  assert.equal((await service.send('GET', '/healthz')).status, 200);
  await eventually('another one writes', async () => {
    const { status } = await service.send('PUT', path, { body: bytes, headers });
    return status === 200 || status === 201;
  });

  disk.hold('read');
  const get = service.send('GET', path);
  await eventually('it hangs in the disk', () => disk.waiting.read > 0);
  supervisor.kill('get_pool', 0);
  const unread = await get;
  assert.ok(unread.status >= 500, `${unread.status}`);
  disk.release('read');
  await eventually('another one reads', async () => {
    const reply = await service.send('GET', path);
    return reply.status === 200 && reply.body.equals(bytes);
  });
  assert.ok((await service.metric('tasks_restarted_total{kind="put_pool"}')) >= 1);
  assert.ok((await service.metric('tasks_restarted_total{kind="get_pool"}')) >= 1);
  assert.equal(service.storage.ingress.admission.inflight, 0);
});
