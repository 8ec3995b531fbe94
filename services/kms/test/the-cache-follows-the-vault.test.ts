/** The cache of the capability keys of kms stays readable when the key of the vault changes. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { SealedFile, kekFromText, type Unlock } from '@ron/custody/sealed';
import { rekeyStore } from '@ron/custody/store';
import { NEVER } from '@ron/kernel';
import { tempDir } from '@ron/testkit';
import { KEK, startService } from './support.ts';

const OLD: Unlock = { kek: kekFromText(KEK) };
const NEXT = '11'.repeat(32);

/** Creates it, if `initial` is given. */
const openCache = (dir: string, unlock: Unlock, initial: unknown = {}): Promise<SealedFile<unknown>> => {
  const path = join(dir, 'auth', 'cache');
  return SealedFile.open<unknown>({ path, purpose: 'capability-cache', unlock, initial, signal: NEVER });
};

test('a cache that an earlier version sealed with the key itself is kept; a changed key opens everything', async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  {
    const revocations = { version: 0, all: 0, subjects: {}, ids: {} };
    await using earlier = await openCache(dir, OLD, { format: 1, keys: {}, revocations, marks: { kept: 7 } });
    assert.equal(earlier.version, 1);
  }
  await (await startService({ dir }))[Symbol.asyncDispose]();
  await assert.rejects(openCache(dir, OLD), { code: 'not_ready' });
  const next: Unlock = { kek: kekFromText(NEXT) };
  const switchTo = (): Promise<void> => Promise.resolve();
  await rekeyStore({ dir: join(dir, 'vault'), current: OLD, next, switchTo, signal: NEVER });
  await using kms = await startService({ dir, env: { RON_KEK: NEXT } });
  assert.equal((await kms.get('/keys')).status, 200);
});
