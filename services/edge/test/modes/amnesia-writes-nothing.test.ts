/** Amnesia: the same surface without a disk. The file system is watched from outside while everything is used. */
import assert from 'node:assert/strict';
import { watch } from 'node:fs';
import { access, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { eventually, filesOpenForWriting, tempDir, hasWritten } from '@ron/testkit';
import { answer, FRESH } from '../fill/support.ts';
import { startProcess } from '../process.ts';
import { AMNESIA } from '../support.ts';
import { numberedOrigin } from './support.ts';

test('fills, purges and the fill log stay in memory: nothing is written to any disk', async () => {
  await using temp = await tempDir();
  await using other = await tempDir();
  const at = (name: string): string => join(temp.path, name);
  for (const name of ['cwd', 'tmp', 'home']) await mkdir(at(name));
  await using numbered = await numberedOrigin(other.path, (socket) => socket.write(answer('tile', FRESH)));
  const { process: edge, headers } = await startProcess(temp.path, {
    flags: [...AMNESIA, '--edge.mode=live', ...numbered.flags],
    cwd: at('cwd'),
    // Not the compile cache of the test run: Node writes to it.
    env: { TMPDIR: at('tmp'), HOME: at('home'), NODE_DISABLE_COMPILE_CACHE: '1' },
  });
  await using _ = edge;
  const seen: string[] = [];
  const watchers = [temp.path, at('cwd'), at('tmp'), at('home')].map((dir) =>
    watch(dir, (event, name) => void seen.push(`${event} ${dir}/${name}`)),
  );
  try {
    const path = numbered.pathOf('/a.png');
    assert.equal((await edge.send('GET', path)).text, 'tile');
    await eventually('a hit in memory', async () =>
      /hit; detail=ram/.test(String((await edge.send('GET', path)).headers['cache-status'])),
    );
    assert.equal(numbered.origin.requests.length, 1);
    const checkpoint = (): Promise<number> =>
      edge.send('GET', '/edge/fills/checkpoint', { headers }).then(({ status }) => status);
    await eventually('a checkpoint is signed', async () => (await checkpoint()) === 200);
    const why = await edge.send('GET', `/edge/why?path=${encodeURIComponent(path)}`, { headers });
    assert.equal((why.json as { proof?: object }).proof !== undefined, true);
    const upload = await edge.send('PUT', '/edge/packs/p', { headers, body: 'x' });
    assert.deepEqual([upload.status, upload.headers['x-reason']], [403, 'amnesia']);
    const type = { 'content-type': 'application/json' };
    const body = JSON.stringify({ host: numbered.host });
    const purged = await edge.send('POST', '/edge/purge', { headers: { ...headers, ...type }, body });
    assert.deepEqual(purged.json, { removed: 1 });
    assert.deepEqual(await filesOpenForWriting(edge.pid), []);
    assert.equal(await hasWritten(edge.pid), false);
    assert.equal(await edge.stop(), 0);
    assert.deepEqual(seen, []);
    await assert.rejects(access(at('data')), { code: 'ENOENT' });
  } finally {
    for (const watcher of watchers) watcher.close();
  }
});
