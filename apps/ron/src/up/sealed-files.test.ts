/** Every sealed file of the table gets the key of its service, those of a directory too. */
import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { kekFromText, SealedFile, serviceKek } from '@ron/custody/sealed';
import { tempDirFor } from '@ron/testkit';
import type { Planned } from './plan.ts';
import { resealFiles } from './sealed-files.ts';
import { SERVICE_TABLE } from './table/services.ts';

const { signal } = new AbortController();
const [BEFORE, NEXT] = ['11'.repeat(32), '22'.repeat(32)];

const open = (path: string, purpose: string, kek: string): Promise<SealedFile<unknown>> =>
  SealedFile.open<unknown>({ path, purpose, unlock: { kek: kekFromText(kek) }, initial: { name: path }, signal });

test('the files of all providers and their catalog are sealed again, other files stay as they are', async (t) => {
  const data_dir = tempDirFor(t);
  const dir = join(data_dir, 'providers');
  await mkdir(dir);
  const files = [
    [join(dir, 'github.sealed'), 'interop-provider/github'],
    [join(dir, 'x.sealed'), 'interop-provider/x'],
    [join(dir, 'catalog'), 'interop-catalog'],
  ] as const;
  const entry = SERVICE_TABLE.find(({ name }) => name === 'interop')!;
  for (const [path, purpose] of files) await (await open(path, purpose, serviceKek(BEFORE, 'interop'))).close();
  await writeFile(join(dir, '.sealed'), 'not a file of a provider');
  await writeFile(join(dir, 'lock'), '');
  const planned = { entry, value: (key: string) => (key === 'data_dir' ? data_dir : undefined) } as unknown as Planned;
  await resealFiles([planned], { kek: NEXT, kek_before: BEFORE }, signal);
  for (const [path, purpose] of files) {
    await using file = await open(path, purpose, serviceKek(NEXT, 'interop'));
    assert.deepEqual(file.value, { name: path });
  }
});

test('a service that never started has no directory', async (t) => {
  const entry = SERVICE_TABLE.find(({ name }) => name === 'interop')!;
  const planned = { entry, value: () => join(tempDirFor(t), 'none') } as unknown as Planned;
  await resealFiles([planned], { kek: NEXT }, signal);
});
