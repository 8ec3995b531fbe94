/** Compaction through HTTP: a task with progress, reclaimed space, and no effect on clients. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { bytesOf, eventually, MIB, tempDir } from '@ron/testkit';
import { addressOf, assertRefusal, authorizationFrom } from '@ron/testkit/service';
import { keysIn, startProcess } from './process.ts';
import { AMNESIA, assertServed, startService, type TestService } from './support.ts';

const pathOf = (bytes: Uint8Array): string => `/o/${addressOf(bytes)}`;
const FLAGS = ['--storage.segment_bytes=4MiB', '--storage.compact_live_ratio=0.9'];

/** Stores garbage and objects, interleaved; returns the objects. */
async function fill(service: Pick<TestService, 'send'>, headers: Readonly<Record<string, string>>): Promise<Buffer[]> {
  const kept: Buffer[] = [];
  for (let round = 0; round < 4; round += 1) {
    const small = bytesOf(10_000, 10 * round + 1);
    const large = bytesOf(300_000, 10 * round + 2);
    for (const bytes of [small, large]) {
      assert.equal((await service.send('PUT', pathOf(bytes), { body: bytes, headers })).status, 201);
      kept.push(bytes);
    }
    const garbage = bytesOf(3 * MIB, 10 * round + 3);
    assert.equal((await service.send('PUT', pathOf(small), { body: garbage, headers })).status, 409);
  }
  return kept;
}

interface Task {
  readonly id: string;
  readonly state: string;
  readonly problem?: string;
  readonly progress: Readonly<Record<string, number | string>>;
}

async function ended(
  service: Pick<TestService, 'send'>,
  headers: Readonly<Record<string, string>>,
  id: string,
): Promise<Task> {
  let task: Task | undefined;
  await eventually('the task ends', async () => {
    const reply = await service.send('GET', `/admin/tasks/${id}`, { headers });
    assert.equal(reply.status, 200);
    task = JSON.parse(reply.text);
    return task!.state !== 'running';
  });
  return task!;
}

describe('compaction', () => {
  test('202 with a task and its progress; space is reclaimed, even over a restart', async () => {
    await using temp = await tempDir();
    const dir = join(temp.path, 'data');
    let kept: Buffer[] = [];
    let used_bytes = 0;
    {
      await using service = await startService({ dir, flags: FLAGS });
      const headers = await service.allow();
      kept = await fill(service, headers);
      const before_bytes = service.storage.engine.volume.stats().used_bytes;
      const reply = await service.send('POST', '/admin/compact', { headers });
      assert.equal(reply.status, 202);
      const { id, kind, state, started_ms } = JSON.parse(reply.text);
      assert.deepEqual([kind, state], ['compact', 'running']);
      assert.ok(started_ms <= Date.now());
      assert.equal(reply.headers.location, `/admin/tasks/${id}`);
      const task = await ended(service, headers, id);
      assert.equal(task.state, 'done', task.problem ?? '');
      used_bytes = service.storage.engine.volume.stats().used_bytes;
      assert.ok(used_bytes < before_bytes - 6 * MIB, `${before_bytes} bytes, then ${used_bytes}`);
      assert.ok(Number(task.progress['freed_bytes']) >= 6 * MIB);
      assert.equal(task.progress['objects'], 8);
      const { tasks } = JSON.parse((await service.send('GET', '/admin/tasks', { headers })).text);
      assert.deepEqual(tasks, [task]);
      await assertServed(service, kept);
    }
    await using service = await startService({ dir, flags: FLAGS });
    await assertServed(service, kept);
    assert.ok(service.storage.engine.volume.stats().used_bytes <= used_bytes + MIB);
  });

  test('one at a time: a second request returns the running task', async () => {
    await using service = await startService({ flags: [...FLAGS, '--storage.compact_pacing=1MiB/s'] });
    const headers = await service.allow();
    const kept = await fill(service, headers);
    const ids = new Set<string>();
    for (let time = 0; time < 3; time += 1) {
      const reply = await service.send('POST', '/admin/compact', { headers });
      assert.equal(reply.status, 202);
      ids.add(JSON.parse(reply.text).id);
    }
    assert.equal(ids.size, 1);
    await assertServed(service, kept);
  });

  test('readers and writers are not affected', async () => {
    await using service = await startService({ flags: FLAGS });
    const headers = await service.allow();
    const kept = await fill(service, headers);
    const load = { on: true };
    const reader = (async () => {
      while (load.on) await assertServed(service, kept);
    })();
    const writer = (async () => {
      for (let seed = 1000; load.on; seed += 1) {
        const bytes = bytesOf(seed % 2 === 0 ? 200_000 : 2000, seed);
        await service.put(bytes);
        kept.push(bytes);
      }
    })();
    for (let time = 0; time < 2; time += 1) {
      await service.send('PUT', pathOf(kept[0]!), { body: bytesOf(4 * MIB, 5000 + time), headers });
      const { id } = JSON.parse((await service.send('POST', '/admin/compact', { headers })).text);
      assert.equal((await ended(service, headers, id)).state, 'done');
    }
    load.on = false;
    await Promise.all([reader, writer]);
    await assertServed(service, kept);
    assert.equal(await service.metric('integrity_fail_total{reason="checksum"}'), 0);
  });

  test('an unpinned object is removed after its lease, and no longer served from memory', async () => {
    await using service = await startService({ flags: ['--storage.lease=1s'] });
    const headers = await service.allow();
    const [pinned, left] = [bytesOf(1000, 1), bytesOf(1000, 2)];
    for (const bytes of [pinned, left]) await service.put(bytes);
    assert.equal((await service.send('PUT', `${pathOf(pinned)}/pin`, { headers })).status, 204);
    await assertServed(service, [pinned, left, pinned, left]);
    await eventually('the lease runs out', async () => {
      const { id } = JSON.parse((await service.send('POST', '/admin/compact', { headers })).text);
      assert.equal((await ended(service, headers, id)).state, 'done');
      return (await service.send('GET', pathOf(left))).status === 404;
    });
    await assertServed(service, [pinned]);
    await service.put(left);
    await assertServed(service, [left]);
  });

  test('in memory the routes are the same', async () => {
    await using service = await startService({ flags: AMNESIA });
    const headers = await service.allow();
    const kept = await fill(service, headers);
    const before_bytes = service.storage.engine.volume.stats().used_bytes;
    const { id } = JSON.parse((await service.send('POST', '/admin/compact', { headers })).text);
    assert.equal((await ended(service, headers, id)).state, 'done');
    assert.ok(service.storage.engine.volume.stats().used_bytes < before_bytes - 6 * MIB);
    await assertServed(service, kept);
  });

  test('an unknown task', async () => {
    await using service = await startService({ flags: AMNESIA });
    const headers = await service.allow();
    assertRefusal(await service.send('GET', '/admin/tasks/none', { headers }), 404, 'not_found');
    assertRefusal(await service.send('POST', '/admin/compact', { headers, body: 'x' }), 400, 'bad_request');
    assertRefusal(await service.send('GET', '/admin/compact', { headers }), 405, 'method_not_allowed');
  });

  test('a stopping process ends a running compaction and loses nothing', async () => {
    await using temp = await tempDir();
    const headers = await authorizationFrom(keysIn(temp.path), 'storage');
    const data = join(temp.path, 'data');
    const flags = [`--data_dirs=${data}`, `--auth.key_file=${keysIn(temp.path)}`, ...FLAGS];
    let kept: Buffer[];
    {
      await using storage = await startProcess({ flags: [...flags, '--storage.compact_pacing=64KiB/s'] });
      kept = await fill(storage, headers);
      assert.equal((await storage.send('POST', '/admin/compact', { headers })).status, 202);
      assert.equal(await storage.stop(), 0);
      assert.equal(storage.logged('drained')?.['tasks_aborted'], 0);
    }
    await using storage = await startProcess({ flags });
    await assertServed(storage, kept);
  });
});
