/** While volumes are opened, however long that takes, probes are answered at the service's address. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { realFileSystem, type FileSystem } from '@ron/log';
import { tempDir, unusedPort } from '@ron/testkit';
import { startService } from './support.ts';

test('healthz answers and reads are refused with Retry-After until the volume is open', async () => {
  await using dir = await tempDir();
  const port = await unusedPort();
  const gate = Promise.withResolvers<void>();
  const fs: FileSystem = Object.assign(Object.create(realFileSystem) as FileSystem, {
    list: (path: string) => gate.promise.then(() => realFileSystem.list(path)),
  });
  const opening = startService({ dir: dir.path, fs, flags: [`--server.bind=127.0.0.1:${port}`] });
  const ask = (path: string): Promise<Response | undefined> =>
    fetch(`http://127.0.0.1:${port}${path}`).catch(() => undefined);
  let health: Response | undefined;
  while (health === undefined) health = await ask('/healthz');
  assert.equal(health.status, 200);
  for (const path of ['/readyz', `/o/b3:${'0'.repeat(64)}`]) {
    const refused = await ask(path);
    assert.equal(refused?.status, 503, path);
    assert.ok(Number(refused.headers.get('retry-after')) > 0);
  }
  gate.resolve();
  await using service = await opening;
  assert.equal(service.url, `http://127.0.0.1:${port}`);
  assert.equal((await ask('/readyz'))?.status, 200);
  assert.equal((await ask(`/o/b3:${'0'.repeat(64)}`))?.status, 404);
});
