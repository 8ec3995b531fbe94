/** A secret in the environment of `ron up` reaches kms and no other process, log or file. */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { chmod, chown, mkdir, readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { kekFromText, SealedFile, serviceKek } from '@ron/custody/sealed';
import { leaks } from '@ron/auth/testing';
import { NEVER } from '@ron/kernel';
import { eventually } from '@ron/testkit';
import { CleanUps, command, ron, temporaryDir, up, type Ended, type Up } from './support.ts';

const KEK = '5ec4e7'.padEnd(64, '0123456789abcdef');
const SECRETS = {
  RON_KEK: KEK,
  RON_PIN: 'pin-of-the-token-4711',
  AWS_ACCESS_KEY_ID: 'aws-access-key-4711',
  AWS_SECRET_ACCESS_KEY: 'aws-secret-key-4711',
  GITHUB_TOKEN: 'token-of-another-program-4711',
};
for (const [name, value] of Object.entries(SECRETS)) leaks.secret(name, value);
leaks.secret('the bytes of RON_KEK', Buffer.from(KEK, 'hex'));

const IS_ROOT = process.geteuid?.() === 0;
const NEEDS_ROOT = { skip: !IS_ROOT && 'needs root, to run as another user' };
const NOBODY = 65_534;

const environ = async (pid: number): Promise<string> => await readFile(`/proc/${pid}/environ`, 'latin1');

/** The names of the secrets in a text. */
const found = (text: string): string[] =>
  Object.entries(SECRETS).flatMap(([name, value]) => (text.includes(value) ? [name] : []));

async function filesBelow(dir: string): Promise<string[]> {
  const entries = await readdir(dir, { recursive: true, withFileTypes: true });
  return entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
}

describe('a node with secrets in its environment', () => {
  const cleanUps = new CleanUps();
  let dir: string;
  let node: Up;

  before(async () => {
    dir = await temporaryDir(cleanUps);
    node = await up(cleanUps, dir, [], { env: SECRETS });
    assert.equal((await command(['keys', 'create', '--dir', dir])).code, 0);
    assert.equal((await command(['cap', 'revoke', 'bob', '--dir', dir])).code, 0);
  });
  after(() => cleanUps.run());

  test('environments, command lines, logs and files contain them only in kms', { skip: !IS_ROOT }, async () => {
    const { kms, storage, passport } = node.pids;
    assert.deepEqual(found(await environ(kms!)), Object.keys(SECRETS));
    for (const pid of [storage!, passport!]) assert.deepEqual(found(await environ(pid)), []);
    assert.ok((await environ(passport!)).includes(`RON_KEK=${serviceKek(KEK, 'passport')}`));
    for (const pid of [kms!, storage!, passport!, node.process.child.pid!])
      assert.deepEqual(found(await readFile(`/proc/${pid}/cmdline`, 'latin1')), []);
    node.process.kill('SIGTERM');
    assert.equal((await node.process.ended).code, 0);
    for (const path of await filesBelow(dir)) {
      const text = await readFile(path, 'latin1');
      assert.deepEqual(found(text), [], path);
      assert.ok(!text.includes(Buffer.from(KEK, 'hex').toString('latin1')), path);
    }
  });

  test('files that an earlier version sealed with the key of the node keep their content', async (t) => {
    await stop(node);
    const revocations = join(dir, 'passport', 'data', 'revocations');
    const cache = join(dir, 'storage', 'auth', 'cache');
    const earlier = await relock(revocations, 'revocations', serviceKek(KEK, 'passport'), KEK);
    await relock(cache, 'capability-cache', serviceKek(KEK, 'storage'), KEK);
    await stop(await up(t, dir, [], { env: SECRETS }));
    const file = await openWith(revocations, 'revocations', serviceKek(KEK, 'passport'));
    assert.deepEqual(file.value, earlier);
    assert.equal(Object.keys((earlier as { subjects: object }).subjects).length, 1);
    await file.close();
    await (await openWith(cache, 'capability-cache', serviceKek(KEK, 'storage'))).close();
  });
});

describe('another process of the same user', NEEDS_ROOT, () => {
  test('reads neither memory nor environment, opens no debugger and gets no core dump', async (t) => {
    const dir = await temporaryDir(t);
    await chown(dir, NOBODY, NOBODY);
    await chmod(dir, 0o700);
    const home = join(dir, 'home');
    await mkdir(home);
    await chown(home, NOBODY, NOBODY);
    const env = { ...SECRETS, HOME: home, XDG_CACHE_HOME: home, TMPDIR: home };
    execFileSync('prlimit', ['--pid', String(process.pid), '--core=unlimited']);
    const node = await up(t, join(dir, 'node'), [], { env, cwd: home, uid: NOBODY });
    for (const [name, pid] of Object.entries({ ...node.pids, up: node.process.child.pid! })) {
      await eventually(`${name} is protected`, () => stat(`/proc/${pid}/mem`).then(({ uid }) => uid === 0));
      for (const file of ['environ', 'mem', 'maps']) {
        const { status, stderr } = spawnSync('cat', [`/proc/${pid}/${file}`], { uid: NOBODY, encoding: 'utf8' });
        assert.notEqual(status, 0, `${file} of ${name}`);
        assert.match(stderr, /Permission denied/);
      }
      spawnSync('kill', ['-USR1', String(pid)], { uid: NOBODY });
    }
    // Commands of the same user, and the services themselves, still find all they need in /proc.
    const run = (...args: string[]): Promise<Ended> =>
      ron(t, [...args, '--dir', node.dir], { env, cwd: home, uid: NOBODY });
    assert.equal((await run('keys', 'create')).code, 0);
    assert.equal((await run('put', '/etc/hostname')).code, 0);
    const cmdline = spawnSync('cat', [`/proc/${node.pids['kms']}/cmdline`], { uid: NOBODY, encoding: 'utf8' });
    assert.match(cmdline.stdout, /kms/);
    // A request after the signal shows that the processes still run and have handled it.
    assert.equal((await fetch(`${node.services['kms']}/healthz`)).status, 200);
    const listening = await readFile('/proc/net/tcp', 'utf8');
    assert.ok(!/:240D 0+:0+ 0A/.test(listening), 'no debugger listens on port 9229');
    spawnSync('kill', ['-ABRT', String(node.pids['kms'])], { uid: NOBODY });
    await node.process.until('the restart', () => node.process.child.exitCode === null && isGone(node.pids['kms']!));
    await stop(node);
    const left = (await filesBelow(dir)).filter((path) => /(^|\/)core[^/]*$/.test(path));
    assert.deepEqual(left, []);
  });
});

function isGone(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return false;
  } catch {
    return true;
  }
}

async function stop(node: Up): Promise<void> {
  node.process.kill('SIGTERM');
  await node.process.ended;
}

const openWith = (path: string, purpose: string, kek: string): Promise<SealedFile<unknown>> =>
  SealedFile.open<unknown>({ path, purpose, unlock: { kek: kekFromText(kek) }, initial: {}, signal: NEVER });

async function relock(path: string, purpose: string, from: string, to: string): Promise<unknown> {
  await using file = await openWith(path, purpose, from);
  await file.relock({ kek: kekFromText(to) }, NEVER);
  return file.value;
}
