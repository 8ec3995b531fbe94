/** `ron keys rekey` replaces the secret of kms; the node then starts with the new one only, and nothing is lost. */
import assert from 'node:assert/strict';
import { readFile, rename, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { leaks } from '@ron/auth/testing';
import { command, Process, temporaryDir, up, type Ended, type RunInit, type Up } from './support.ts';

const [FIRST, SECOND] = ['a1'.repeat(32), 'b2'.repeat(32)];
for (const kek of [FIRST, SECOND]) leaks.secret('a key of kms', kek);

async function stop(node: Up): Promise<void> {
  node.process.kill('SIGTERM');
  assert.equal((await node.process.ended).code, 0);
}

/** Starts the node, and returns the kids of its keys. */
async function kidsOf(t: Parameters<typeof up>[0], dir: string, args: string[], init: RunInit = {}): Promise<string> {
  const node = await up(t, dir, args, init);
  const listed = await command(['keys', 'list', '--dir', dir]);
  assert.equal(listed.code, 0, listed.stderr);
  await stop(node);
  return listed.text;
}

describe('ron keys rekey', () => {
  test('replaces a generated key in its file; a running node and the old key are refused', async (t) => {
    const dir = await temporaryDir(t);
    const kek_file = join(dir, 'kms', 'data', 'kek');
    const rekey = (...args: string[]): Promise<Ended> => command(['keys', 'rekey', '--dir', dir, ...args]);
    assert.equal((await rekey('--generate')).code, 66, 'there is no data');
    const node = await up(t, dir);
    const made = await command(['keys', 'create', '--alg', 'ed25519', '--dir', dir]);
    const refused = await rekey('--generate');
    assert.deepEqual([refused.code, /is in use by `ron up`/.test(refused.stderr)], [69, true]);
    assert.equal((await command(['cap', 'revoke', 'bob', '--dir', dir])).code, 0);
    await stop(node);
    const before = await readFile(kek_file, 'utf8');
    assert.equal((await rekey()).code, 64);
    const done = await rekey('--generate', '--json');
    assert.deepEqual([done.code, done.stderr], [0, '']);
    assert.deepEqual(JSON.parse(done.text), {
      rekeyed: true,
      kind: 'key',
      file: kek_file,
      needs_configuration: false,
    });
    const after = await readFile(kek_file, 'utf8');
    assert.notEqual(after, before);
    assert.equal((await stat(kek_file)).mode & 0o777, 0o600);
    assert.match(await kidsOf(t, dir, []), new RegExp(made.text.trim().replace(/#.*/, '')));
    await rename(kek_file, `${kek_file}.new`);
    await writeFile(kek_file, before, { mode: 0o600 });
    const old = new Process(t, ['up', '--only', 'kms', '--base-port', '0', '--dir', dir]);
    await old.until('the refusal', () => old.stderr.includes('the key or passphrase is wrong'));
    old.kill('SIGTERM');
    await old.ended;
    await rename(`${kek_file}.new`, kek_file);
  });

  test('replaces RON_KEK, and seals the files of the other services with it too', async (t) => {
    const dir = await temporaryDir(t);
    const node = await up(t, dir, [], { env: { RON_KEK: FIRST } });
    const made = await command(['keys', 'create', '--alg', 'ed25519', '--dir', dir]);
    assert.equal((await command(['cap', 'revoke', 'bob', '--dir', dir])).code, 0);
    await stop(node);
    const rekey = (...args: string[]): Promise<Ended> =>
      command(['keys', 'rekey', '--dir', dir, ...args], { RON_KEK: FIRST });
    const generated = await rekey('--generate');
    assert.deepEqual(
      [generated.code, /RON_KEK cannot be replaced here: write the new key to a file/.test(generated.stderr)],
      [64, true],
    );
    const file = join(dir, 'next.kek');
    await writeFile(file, `${SECOND}\n`, { mode: 0o640 });
    assert.match((await rekey('--new-kek-file', file)).stderr, /is open to other users \(mode 0640\)/);
    await writeFile(`${file}.private`, `${SECOND}\n`, { mode: 0o600 });
    const done = await rekey('--new-kek-file', `${file}.private`);
    assert.equal(done.code, 0, done.stderr);
    assert.match(done.text, /Set RON_KEK to the key in .*next\.kek\.private\./);
    for (const name of ['', '.private']) await rename(`${file}${name}`, join(dir, `moved${name}.cap`));
    const kids = await kidsOf(t, dir, [], { env: { RON_KEK: SECOND } });
    assert.match(kids, new RegExp(made.text.trim().replace(/#.*/, '')));
  });

  test('replaces a key by a passphrase, which the configuration has to name', async (t) => {
    const dir = await temporaryDir(t);
    await stop(await up(t, dir, ['--only', 'kms']));
    const file = join(dir, 'passphrase.cap');
    await writeFile(file, 'correct horse battery staple\n', { mode: 0o600 });
    const done = await command(['keys', 'rekey', '--dir', dir, '--new-passphrase-file', file]);
    assert.equal(done.code, 0, done.stderr);
    assert.match(done.text, /Set kms\.passphrase_file to .*passphrase\.cap, and remove kms\.kek_file/);
    await stop(await up(t, dir, ['--only', 'kms', '--set', `kms.kms.passphrase_file=${file}`]));
  });
});
