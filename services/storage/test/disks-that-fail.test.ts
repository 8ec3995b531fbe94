/** A disk that fills up, turns read-only or fails: writes are refused with the reason, reads succeed, nothing is lost. */
import assert from 'node:assert/strict';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import { bytesOf, eventually, KIB, MIB, tempDir, mountTmpfs, NO_MOUNT, type Mount } from '@ron/testkit';
import {
  addressOf,
  assertRefusal,
  authorizationFrom,
  type Reply,
  type SendInit,
  type ServiceProcess,
} from '@ron/testkit/service';
import { FaultyDisk } from './faulty-disk.ts';
import { keysIn, startProcess } from './process.ts';
import { assertServed, startService } from './support.ts';

const pathOf = (bytes: Uint8Array): string => `/o/${addressOf(bytes)}`;

interface Sender {
  send(method: string, path: string, init?: SendInit): Promise<Reply>;
}

interface Ready {
  readonly status: number;
  readonly degraded: readonly string[];
  readonly reason: string | undefined;
}

async function readyOf(storage: Sender, query = ''): Promise<Ready> {
  const reply = await storage.send('GET', `/readyz${query}`);
  const { degraded, gates } = JSON.parse(reply.text);
  const gate = gates.find(({ gate: name }: { gate: string }) => name === 'volume');
  return { status: reply.status, degraded, reason: gate.reason };
}

interface SmallDisk {
  readonly disk: string;
  readonly mount: Mount;
  readonly headers: { authorization: string };
  readonly start: () => Promise<ServiceProcess>;
}

/** A process on a disk of 8 MiB. */
async function onSmallDisk(t: TestContext, run: (small: SmallDisk) => Promise<void>): Promise<void> {
  await using temp = await tempDir();
  const disk = join(temp.path, 'disk');
  await mkdir(disk);
  using mount = mountTmpfs(disk, '8m');
  if (mount === undefined) return t.skip(NO_MOUNT);
  const headers = await authorizationFrom(keysIn(temp.path), 'storage');
  const flags = [
    `--data_dirs=${join(disk, 'data')}`,
    `--auth.key_file=${keysIn(temp.path)}`,
    '--storage.segment_bytes=4MiB',
    '--storage.cache_bytes=1MiB',
  ];
  await run({ disk, mount, headers, start: () => startProcess({ flags }) });
}

describe('a disk that is full', () => {
  test('507 for writes, reads succeed, and writes succeed again when there is room', async (t) => {
    await onSmallDisk(t, async ({ disk, headers, start }) => {
      const ballast = join(disk, 'ballast');
      await writeFile(ballast, Buffer.alloc(3 * MIB));
      const kept: Buffer[] = [];
      const put = (storage: Sender, bytes: Buffer): Promise<Reply> =>
        storage.send('PUT', pathOf(bytes), { body: bytes, headers });
      const fill = async (storage: Sender, size: number): Promise<Reply> => {
        for (;;) {
          const bytes = bytesOf(size, kept.length + 1);
          const reply = await put(storage, bytes);
          if (reply.status !== 201) return reply;
          kept.push(bytes);
        }
      };
      {
        await using storage = await start();
        // Down to the last page: a disk with room for a small object does not look full.
        for (const size of [300 * KIB, 20 * KIB, 2 * KIB]) {
          const refusal = await fill(storage, size);
          assertRefusal(refusal, 507, 'storage_full');
          assert.equal(refusal.problem?.retryable, true);
        }
        assert.ok(kept.length >= 5, `${kept.length} objects fit`);
        await assertServed(storage, kept);
        const ready = await readyOf(storage);
        assert.deepEqual([ready.status, ready.degraded], [200, ['volume']]);
        assert.match(ready.reason!, /the disk is full/);
        assert.ok(ready.reason!.includes(join(disk, 'data')), 'the reason names the directory');
        assert.equal((await readyOf(storage, '?lane=put')).status, 503);
        assert.ok((await storage.metric('rejected_total{reason="storage_full"}')) >= 1);
        assert.equal(await storage.metric('storage_volume_ok{volume="' + join(disk, 'data') + '"}'), 0);

        await rm(ballast);
        await eventually('/readyz says that writes may come', async () => {
          const { status, degraded } = await readyOf(storage, '?lane=put');
          return status === 200 && degraded.length === 0;
        });
        const bytes = bytesOf(300 * KIB, 1000);
        await eventually('there is room', async () => (await put(storage, bytes)).status === 201);
        kept.push(bytes);
        await assertServed(storage, kept);
        // Full again, and then the process dies.
        await fill(storage, 200 * KIB);
        await storage.kill();
      }
      await using again = await start();
      await assertServed(again, kept);
      assert.equal((await put(again, bytesOf(900 * KIB, 5000))).status, 507);
    });
  });

  test('during an upload: 507, the acknowledged offset stays valid, and the upload continues once there is room', async (t) => {
    await onSmallDisk(t, async ({ disk, headers, start }) => {
      const ballast = join(disk, 'ballast');
      await writeFile(ballast, Buffer.alloc(4 * MIB));
      const tus = { ...headers, 'tus-resumable': '1.0.0' };
      const bytes = bytesOf(5 * MIB, 1);
      let path: string;
      let told = 0;
      const patch = (storage: Sender, length: number): Promise<Reply> =>
        storage.send('PATCH', path, {
          body: bytes.subarray(told, told + length),
          headers: { ...tus, 'content-type': 'application/offset+octet-stream', 'upload-offset': String(told) },
        });
      const offsetOf = async (storage: Sender): Promise<number> =>
        Number((await storage.send('HEAD', path, { headers: tus })).headers['upload-offset']);
      {
        await using storage = await start();
        const begun = await storage.send('POST', '/uploads', {
          headers: { ...tus, 'upload-length': String(bytes.length) },
        });
        path = begun.headers.location!;
        let reply: Reply;
        for (;;) {
          reply = await patch(storage, 500_000);
          if (reply.status !== 204) break;
          told = Number(reply.headers['upload-offset']);
        }
        assertRefusal(reply, 507, 'storage_full');
        assert.ok(told > MIB, `${told}`);
        assert.ok((await offsetOf(storage)) >= told);
        await storage.kill();
      }
      await using storage = await start();
      const offset = await offsetOf(storage);
      assert.ok(offset >= told, `${offset} after a restart, ${told} before`);
      told = offset;
      await rm(ballast);
      await eventually('the rest is taken', async () => {
        told = await offsetOf(storage);
        return (await patch(storage, bytes.length)).headers['ron-address'] === addressOf(bytes);
      });
      await assertServed(storage, [bytes]);
    });
  });

  test('compaction without room changes nothing; with a little room it makes more', async (t) => {
    await onSmallDisk(t, async ({ disk, headers, start }) => {
      const ballast = join(disk, 'ballast');
      await writeFile(ballast, Buffer.alloc(1500 * KIB));
      await using storage = await start();
      const kept: Buffer[] = [];
      const put = (bytes: Buffer, at = bytes): Promise<Reply> =>
        storage.send('PUT', pathOf(at), { body: bytes, headers });
      // Most of it is garbage: bytes that were sent to the wrong address.
      for (let round = 0; ; round += 1) {
        const bytes = bytesOf(50 * KIB, 100 + round);
        if ((await put(bytes)).status !== 201) break;
        kept.push(bytes);
        if ((await put(bytesOf(400 * KIB, 500 + round), bytes)).status === 507) break;
      }
      const compact = async (): Promise<{ state: string; progress: { freed_bytes: number } }> => {
        const { id } = JSON.parse((await storage.send('POST', '/admin/compact', { headers })).text);
        let task = { state: 'running', progress: { freed_bytes: 0 } };
        await eventually('the compaction ends', async () => {
          task = JSON.parse((await storage.send('GET', `/admin/tasks/${id}`, { headers })).text);
          return task.state !== 'running';
        });
        return task;
      };
      await compact();
      await assertServed(storage, kept);
      await rm(ballast);
      await eventually('it is done', async () => (await compact()).state === 'done');
      await assertServed(storage, kept);
      assert.equal(await storage.metric('integrity_fail_total{reason="checksum"}'), 0);
      const bytes = bytesOf(3 * MIB, 2);
      await eventually('there is room', async () => (await put(bytes)).status === 201);
      await assertServed(storage, [...kept, bytes]);
      await storage.kill();
      await using again = await start();
      await assertServed(again, [...kept, bytes]);
    });
  });
});

describe('a disk that is read-only', () => {
  test('at the start: reads are served, writes are 503, and /readyz names the directory', async (t) => {
    await onSmallDisk(t, async ({ disk, mount, headers, start }) => {
      const kept = [bytesOf(1000, 1), bytesOf(300 * KIB, 2)];
      {
        await using storage = await start();
        for (const bytes of kept) {
          assert.equal((await storage.send('PUT', pathOf(bytes), { body: bytes, headers })).status, 201);
        }
        await storage.kill();
      }
      assert.ok(mount.remount('ro'));
      await using storage = await start();
      await eventually('/readyz reports it before a write', async () => {
        const { status, reason } = await readyOf(storage, '?lane=put');
        return status === 503 && /read-only/.test(reason ?? '');
      });
      await assertServed(storage, kept);
      for (const size of [100, 300 * KIB]) {
        const bytes = bytesOf(size, 3);
        assertRefusal(await storage.send('PUT', pathOf(bytes), { body: bytes, headers }), 503, 'not_ready');
      }
      assertRefusal(await storage.send('PUT', `${pathOf(kept[0]!)}/pin`, { headers }), 503, 'not_ready');
      const tus = { ...headers, 'tus-resumable': '1.0.0', 'upload-length': '10' };
      assertRefusal(await storage.send('POST', '/uploads', { headers: tus }), 503, 'not_ready');
      await assertServed(storage, kept);
      const ready = await readyOf(storage);
      assert.deepEqual([ready.status, ready.degraded], [200, ['volume']]);
      assert.match(ready.reason!, /read-only/);
      assert.ok(ready.reason!.includes(join(disk, 'data')));
      assert.equal((await readyOf(storage, '?lane=put')).status, 503);

      assert.ok(mount.remount('rw'));
      await eventually('writes may come again', async () => (await readyOf(storage, '?lane=put')).status === 200);
      const bytes = bytesOf(100, 4);
      await eventually('they do', async () => {
        const { status } = await storage.send('PUT', pathOf(bytes), { body: bytes, headers });
        return status === 201;
      });
    });
  });

  for (const code of ['EROFS', 'EIO']) {
    test(`while it runs (${code}): writes are 503, reads succeed, writes succeed again with the disk`, async () => {
      const disk = new FaultyDisk();
      await using service = await startService({ fs: disk.fs, flags: ['--storage.cache_bytes=1MiB'] });
      const headers = await service.allow();
      const kept = [bytesOf(1000, 1), bytesOf(2 * MIB, 2)];
      for (const bytes of kept) await service.put(bytes);
      disk.fail(code, 'create', 'write', 'sync');
      for (const size of [100, 300 * KIB]) {
        const bytes = bytesOf(size, size);
        const reply = await service.send('PUT', pathOf(bytes), { body: bytes, headers });
        assertRefusal(reply, 503, 'not_ready');
        assert.equal(
          (await service.send('GET', pathOf(bytes))).status,
          404,
          'a write that was not acknowledged is not stored',
        );
      }
      await assertServed(service, kept);
      // A probe of the directory, which is intact, may run in between: the error of the last write counts.
      let ready: Ready | undefined;
      await eventually('/readyz reports the error of the last write', async () => {
        await service.send('PUT', pathOf(bytesOf(100, 100)), { body: bytesOf(100, 100), headers });
        ready = await readyOf(service);
        return ready.degraded.length > 0;
      });
      const { status, degraded, reason } = ready!;
      assert.deepEqual([status, degraded], [200, ['volume']]);
      assert.match(reason!, code === 'EROFS' ? /read-only \(EROFS\)/ : /the disk failed \(EIO\)/);
      disk.mend();
      const bytes = bytesOf(300 * KIB, 3);
      await eventually('writes are taken again', async () => {
        const reply = await service.send('PUT', pathOf(bytes), { body: bytes, headers });
        return reply.status === 201;
      });
      await assertServed(service, [...kept, bytes]);
      await eventually('/readyz knows', async () => (await readyOf(service, '?lane=put')).status === 200);
    });
  }
});

test('a sync that fails: the request fails, the segment is never written again, and acknowledged data stays', async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  const disk = new FaultyDisk();
  const kept: Buffer[] = [];
  {
    await using service = await startService({ dir, fs: disk.fs });
    const headers = await service.allow();
    for (let round = 0; round < 3; round += 1) {
      const good = bytesOf(5000, round);
      await eventually('it is stored', async () => {
        const reply = await service.send('PUT', pathOf(good), { body: good, headers });
        return reply.status === 201 || reply.status === 200;
      });
      kept.push(good);
      const segments = service.storage.engine.volume.stats().segments;
      disk.fail('EIO', 'sync');
      const bad = bytesOf(5000, 100 + round);
      assertRefusal(await service.send('PUT', pathOf(bad), { body: bad, headers }), 503, 'not_ready');
      disk.mend();
      const next = bytesOf(5000, 200 + round);
      await eventually('the next one is stored', async () => {
        const reply = await service.send('PUT', pathOf(next), { body: next, headers });
        return reply.status === 201;
      });
      kept.push(next);
      assert.ok(service.storage.engine.volume.stats().segments > segments, 'in another segment');
    }
    await assertServed(service, kept);
  }
  await using service = await startService({ dir });
  await assertServed(service, kept);
});
