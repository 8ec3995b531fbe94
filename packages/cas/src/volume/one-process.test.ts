/** One process for one directory of a volume: two that append to the same segments would overwrite each other. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { LocalVolume } from './local-volume.ts';

const { signal } = new AbortController();

test('a volume that another process has open is refused, and can be opened after that process ended in any way', async (t) => {
  const dir = join(mkdtempSync(join(tmpdir(), 'ron-one-')), 'volume');
  t.after(() => rmSync(join(dir, '..'), { recursive: true }));
  const held = { code: 'conflict', message: new RegExp(`another process has ${dir} open`) };
  const volume = await LocalVolume.open({ dir, signal });
  const module = JSON.stringify(new URL('./local-volume.ts', import.meta.url).href);
  const script = `import { LocalVolume } from ${module};
    try { await LocalVolume.open({ dir: ${JSON.stringify(dir)}, signal: new AbortController().signal }); }
    catch (error) { process.exit(error.code === 'conflict' ? 3 : 4); }
    process.kill(process.pid, 'SIGKILL');`;
  const other = (): number | NodeJS.Signals | null => {
    const { status, signal: killedBy } = spawnSync(process.execPath, ['--input-type=module', '-e', script]);
    return status ?? killedBy;
  };
  await assert.rejects(LocalVolume.open({ dir, signal }), held);
  assert.equal(other(), 3);
  await volume.close();
  assert.equal(other(), 'SIGKILL', 'the other process held the lock');
  await (await LocalVolume.open({ dir, signal })).close();
});
