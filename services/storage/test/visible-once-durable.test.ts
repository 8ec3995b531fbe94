/** An object can be read once its PUT is durable, and not before. */
import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { bytesOf, KIB, MIB } from '@ron/testkit';
import { addressOf } from '@ron/testkit/service';
import { FaultyDisk } from './faulty-disk.ts';
import { startService, type TestService } from './support.ts';

const SHAPES = {
  'one directory': { dirs: undefined, flags: [] },
  'two directories': { dirs: ['a', 'b'], flags: ['--durability.replication_factor=2'] },
} as const;
const SYNC_MS = 1500;
const later = (ms: number): Promise<void> => new Promise((resolve) => void setTimeout(resolve, ms));

/** The answers to readers until `isOver`, at least one of each kind. */
async function poll(service: TestService, path: string, isOver: () => boolean): Promise<Set<string>> {
  const seen = new Set<string>();
  do {
    for (const method of ['GET', 'HEAD']) {
      const { status } = await service.send(method, path);
      if (!isOver()) seen.add(`${method} ${status}`);
    }
    await later(20);
  } while (!isOver());
  return seen;
}

for (const [shape, { dirs, flags }] of Object.entries(SHAPES)) {
  suite(shape, () => {
    for (const [size, bytes] of [
      ['a small object', bytesOf(KIB, 1)],
      ['an object of many chunks', bytesOf(3 * MIB, 2)],
    ] as const) {
      test(`${size} answers 404 while its sync takes ${SYNC_MS} ms, and 200 once it is acknowledged`, async () => {
        const disk = new FaultyDisk();
        await using service = await startService({ fs: disk.fs, flags, ...(dirs && { dirs }) });
        await service.put(bytesOf(100, 9));
        const path = `/o/${addressOf(bytes)}`;
        disk.hold('sync');
        let isOver = false;
        const headers = await service.allow();
        const put = service.send('PUT', path, { body: bytes, headers }).finally(() => void (isOver = true));
        const polled = poll(service, path, () => isOver);
        await later(SYNC_MS);
        disk.mend();
        assert.equal((await put).status, 201);
        assert.deepEqual([...(await polled)].toSorted(), ['GET 404', 'HEAD 404']);
        assert.ok((await service.send('GET', path)).body.equals(bytes));
      });

      test(`${size} whose sync fails is never answered with 200`, async () => {
        const disk = new FaultyDisk();
        await using service = await startService({ fs: disk.fs, flags, ...(dirs && { dirs }) });
        await service.put(bytesOf(100, 9));
        const path = `/o/${addressOf(bytes)}`;
        disk.hold('sync');
        disk.fail('EIO', 'sync');
        let isOver = false;
        const headers = await service.allow();
        const put = service.send('PUT', path, { body: bytes, headers });
        const polled = poll(service, path, () => isOver);
        await later(200);
        disk.release('sync');
        assert.equal((await put).status, 503);
        await later(200);
        isOver = true;
        assert.deepEqual([...(await polled)].toSorted(), ['GET 404', 'HEAD 404']);
        disk.mend();
        assert.equal((await service.send('GET', path)).status, 404);
      });
    }
  });
}
