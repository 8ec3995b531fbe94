/** `ron up` without `storage.data_dirs` uses the directories of the last run. */
import assert from 'node:assert/strict';
import { rename } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { Process, ron, temporaryDir, up } from './support.ts';

test('ron up uses the known directories of storage; ron up and ron doctor name a missing one', async (t) => {
  const base = await temporaryDir(t);
  const dir = join(base, 'node');
  const dirs = ['a', 'b', 'c'].map((name) => join(base, name));
  const first = await up(t, dir, ['--only', 'storage', '--set', `storage.data_dirs=${dirs.join(',')}`]);
  const put = await ron(t, ['put', '-', '--dir', dir], { input: 'kept' });
  assert.equal(put.code, 0, put.stderr);
  first.process.kill('SIGTERM');
  assert.equal((await first.process.ended).code, 0);

  const second = await up(t, dir, ['--only', 'storage']);
  const get = await ron(t, ['get', put.text.trim(), '--dir', dir]);
  assert.equal(get.text, 'kept', get.stderr);
  const { volumes } = JSON.parse((await ron(t, ['volumes', '--json', '--dir', dir])).text) as {
    volumes: { name: string }[];
  };
  assert.deepEqual(volumes.map(({ name }) => name).toSorted(), dirs);
  second.process.kill('SIGTERM');
  await second.process.ended;

  await rename(dirs[1]!, join(base, 'elsewhere'));
  const stopped = await ron(t, ['doctor', '--dir', dir]);
  assert.notEqual(stopped.code, 0);
  assert.match(stopped.text, new RegExp(`fail +volume ${dirs[1]} is missing`));
  const third = new Process(t, ['up', '--base-port', '0', '--dir', dir, '--only', 'storage']);
  await third.until('the note', () => third.stderr.includes('storage is degraded: '));
  assert.match(third.stderr, new RegExp(`storage is degraded: .*${dirs[1]}`));
  const running = await ron(t, ['doctor', '--dir', dir]);
  assert.match(running.text, new RegExp(`warn +storage at .* degraded: .*${dirs[1]}`));
  third.kill('SIGTERM');
  await third.ended;
});
