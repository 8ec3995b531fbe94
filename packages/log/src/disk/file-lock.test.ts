import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { tempDirFor } from '@ron/testkit';
import { tryLock } from './file-lock.ts';

test('one holder at a time, in this process and in others, and a leftover file locks nothing', (t) => {
  const dir = tempDirFor(t);
  const path = join(dir, 'lock');
  const module = JSON.stringify(new URL('./file-lock.ts', import.meta.url).href);
  const script = `import { tryLock } from ${module}; process.exit(tryLock(${JSON.stringify(path)}) === undefined ? 3 : 4)`;
  const fromOther = (): number | null =>
    spawnSync(process.execPath, ['--input-type=module', '-e', script], { stdio: 'inherit' }).status;
  const first = tryLock(path);
  assert.ok(first !== undefined);
  assert.equal(tryLock(path), undefined);
  assert.equal(fromOther(), 3);
  first[Symbol.dispose]();
  assert.equal(fromOther(), 4);
  const again = tryLock(path);
  assert.ok(again !== undefined, 'the lock is free after its holder ended');
  again[Symbol.dispose]();
});
