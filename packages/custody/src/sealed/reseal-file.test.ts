import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { tempDirFor } from '@ron/testkit';
import { resealFile } from './reseal-file.ts';
import { SealedFile } from './sealed-file.ts';
import type { Unlock } from './sealer.ts';

const kek = (byte: number): Unlock => ({ kek: Buffer.alloc(32, byte) });
const [OLD, NEW, OTHER] = [kek(1), kek(2), kek(3)];
const open = (path: string, unlock: Unlock): Promise<SealedFile<{ a: number }>> =>
  SealedFile.open({ path, purpose: 'test', unlock, initial: { a: 1 }, signal: NEVER });

test('a file sealed with a known secret keeps its content under the next one; any other is left unchanged', async (t) => {
  const path = join(tempDirFor(t), 'file');
  const reseal = (next: Unlock, before: Unlock[]): Promise<boolean> =>
    resealFile({ path, purpose: 'test', next, before, signal: NEVER });
  assert.equal(await reseal(NEW, [OLD]), false, 'there is no file');
  {
    await using file = await open(path, OLD);
    await file.replace({ a: 7 }, NEVER);
    await assert.rejects(reseal(NEW, [OLD]), { code: 'conflict' });
  }
  assert.equal(await reseal(NEW, [OTHER]), false);
  assert.equal(await reseal(NEW, [OTHER, OLD]), true);
  {
    await using file = await open(path, NEW);
    assert.deepEqual(file.value, { a: 7 });
  }
  await assert.rejects(open(path, OLD), { code: 'not_ready' });
  const before = await readFile(path);
  assert.equal(await reseal(NEW, [OLD]), true);
  assert.deepEqual(await readFile(path), before, 'it is not written again');
});
