/** A secret file that another user can read, write or replace is refused. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmod, chown, mkdir, readdir, readFile, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { tempDirFor } from '@ron/testkit';
import { createSecret, readSecret, readSecretFile, writeSecret } from './secret-file.ts';

const IS_ROOT = process.geteuid?.() === 0;
const NEEDS_ROOT = { skip: !IS_ROOT && 'only root can give files away' };
const OTHER_UID = 65_534;

const refusal = (message: RegExp) => ({ code: 'not_ready', op: 'key_file', message });

test('a file must be private, regular and small: not a pipe, a directory or a large file', async (t) => {
  const dir = tempDirFor(t);
  const path = join(dir, 'secret');
  await writeFile(path, 'hunter2\n', { mode: 0o600 });
  assert.equal(await readSecretFile(path), 'hunter2');
  for (const mode of [0o640, 0o604, 0o620, 0o602, 0o610, 0o601]) {
    await chmod(path, mode);
    await assert.rejects(readSecretFile(path), {
      code: 'not_ready',
      message: `${path} is open to other users (mode 0${mode.toString(8)}): run chmod 600 ${path}`,
    });
  }
  await chmod(path, 0o400);
  assert.equal(await readSecretFile(path), 'hunter2');
  await assert.rejects(readSecretFile(path, 7), refusal(/has 8 bytes, the limit is 7/));
  const pipe = join(dir, 'pipe');
  execFileSync('mkfifo', ['-m', '600', pipe]);
  await assert.rejects(readSecretFile(pipe), refusal(/not a regular file/));
  await assert.rejects(readSecretFile(dir), refusal(/not a regular file/));
  assert.equal(await readSecret(join(dir, 'missing')), undefined);
  await assert.rejects(readSecretFile(join(dir, 'missing')), refusal(/cannot be read \(ENOENT\)/));
});

test('a file of another user is refused', NEEDS_ROOT, async (t) => {
  const path = join(tempDirFor(t), 'secret');
  await writeFile(path, 'x', { mode: 0o600 });
  await chown(path, OTHER_UID, OTHER_UID);
  await assert.rejects(readSecretFile(path), refusal(/belongs to user 65534, this process runs as 0: run chown 0 /));
});

test('links are followed as Kubernetes makes them, but not if their target is exposed, and not in a circle', async (t) => {
  const dir = tempDirFor(t);
  await mkdir(join(dir, '..2026'), { mode: 0o755 });
  await writeFile(join(dir, '..2026', 'kek'), 'abc', { mode: 0o400 });
  await symlink('..2026', join(dir, '..data'));
  await symlink('..data/kek', join(dir, 'kek'));
  await chmod(dir, 0o1777);
  assert.equal(await readSecretFile(join(dir, 'kek')), 'abc');
  await chmod(join(dir, '..2026', 'kek'), 0o444);
  await assert.rejects(readSecretFile(join(dir, 'kek')), refusal(/is open to other users \(mode 0444\)/));
  await symlink('b', join(dir, 'a'));
  await symlink('a', join(dir, 'b'));
  await assert.rejects(readSecretFile(join(dir, 'a')), refusal(/a chain of more than 8 symbolic links/));
  await symlink('nowhere', join(dir, 'dangling'));
  await assert.rejects(readSecretFile(join(dir, 'dangling')), refusal(/cannot be read \(ENOENT\)/));
});

test('a link that another user owns or can replace is refused', NEEDS_ROOT, async (t) => {
  const dir = tempDirFor(t);
  await chmod(dir, 0o711);
  await writeFile(join(dir, 'mine'), 'abc', { mode: 0o600 });
  const shared = join(dir, 'shared');
  await mkdir(shared);
  await chmod(shared, 0o1777);
  await symlink('../mine', join(shared, 'own'));
  assert.equal(await readSecretFile(join(shared, 'own')), 'abc');
  execFileSync('ln', ['-s', '../mine', join(shared, 'planted')], { uid: OTHER_UID });
  await assert.rejects(
    readSecretFile(join(shared, 'planted')),
    refusal(/a symbolic link that another user can replace/),
  );
  await chmod(shared, 0o777);
  await assert.rejects(readSecretFile(join(shared, 'own')), refusal(/a symbolic link that another user can replace/));
  await chmod(shared, 0o700);
  await chown(shared, OTHER_UID, OTHER_UID);
  await assert.rejects(readSecretFile(join(shared, 'own')), refusal(/a symbolic link that another user can replace/));
});

test('a written file is private and complete, and no temporary file is left; creating never replaces', async (t) => {
  const dir = tempDirFor(t);
  const path = join(dir, 'secret');
  const umask = process.umask(0);
  t.after(() => process.umask(umask));
  assert.equal(await createSecret(path, 'first'), true);
  assert.equal(await createSecret(path, 'second'), false);
  assert.equal(await readFile(path, 'utf8'), 'first');
  await writeSecret(path, 'third');
  assert.equal(await readSecret(path), 'third');
  assert.equal((await stat(path)).mode & 0o777, 0o600);
  assert.deepEqual(await readdir(dir), ['secret']);
  await assert.rejects(writeSecret(join(dir, 'no', 'such'), 'x'), { code: 'ENOENT' });
});
