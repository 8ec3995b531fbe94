/** A damaged audit log stops signing and nothing else; a kms that cannot start stops no other service. */
import assert from 'node:assert/strict';
import { cp, readFile, rename, rm, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { suite, test, type TestContext } from 'node:test';
import { eventually } from '@ron/testkit';
import { ron, temporaryDir, up, type Ended, type Up } from './support.ts';

interface Site {
  readonly dir: string;
  readonly data: string;
  /** A copy of the data of kms before its last operations. */
  readonly copy: string;
  readonly address: string;
  readonly file: string;
  run(...args: string[]): Promise<Ended>;
}

/** A stopped node with an object and a signature, and a copy of kms/data from before the last operations. */
async function site(t: TestContext): Promise<Site> {
  const work = await temporaryDir(t);
  const dir = join(work, 'node');
  const data = join(dir, 'kms/data');
  const copy = join(work, 'copy');
  const file = join(work, 'file');
  await writeFile(file, 'hello');
  const run = (...args: string[]): Promise<Ended> => ron(t, [...args, '--dir', dir]);
  const address = await session(t, dir, async () => {
    assert.equal((await run('keys', 'create', '--alg', 'ed25519')).code, 0);
    assert.equal((await run('sign', file)).code, 0);
    const put = await run('put', file);
    assert.equal(put.code, 0, put.stderr);
    return put.text.trim().split(/\s/)[0]!;
  });
  await cp(data, copy, { recursive: true });
  await session(t, dir, async () => {
    assert.equal((await run('sign', file)).code, 0);
    assert.equal((await run('keys', 'create', '--alg', 'ed25519', '--tenant', 'late')).code, 0);
  });
  return { dir, data, copy, address, file, run };
}

/** Runs a node for the time of `work`. */
async function session<T>(t: TestContext, dir: string, work: (node: Up) => Promise<T>): Promise<T> {
  const node = await up(t, dir);
  try {
    return await work(node);
  } finally {
    node.process.kill('SIGTERM');
    assert.equal((await node.process.ended).code, 0, node.process.stderr);
  }
}

/** Storage, verification and the checking of capabilities work; signing states the problem. */
async function assertOnlySigningStops({ run, address, file }: Site, why: RegExp): Promise<void> {
  const got = await run('get', address, '--output', '-');
  assert.equal(got.code, 0, got.stderr);
  assert.equal((await run('put', file)).code, 0);
  const signed = await run('sign', file);
  assert.equal(signed.code, 69, signed.stderr);
  assert.match(signed.stderr, /kms refuses to sign/);
  assert.match(signed.stderr, why);
  assert.match(signed.stderr, /ron audit accept/);
  const doctor = await run('doctor');
  assert.match(doctor.text, /kms .* degraded: audit_integrity \(kms refuses to sign/);
}

const damages: readonly { what: string; why: RegExp; plant: (site: Site, t: TestContext) => Promise<void> }[] = [
  {
    what: 'an older audit/',
    why: /truncated|rolled back/,
    plant: async ({ data, copy }) => {
      await rm(join(data, 'audit'), { recursive: true });
      await cp(join(copy, 'audit'), join(data, 'audit'), { recursive: true });
    },
  },
  {
    what: 'a missing audit/',
    why: /audit|truncated/,
    plant: ({ data }) => rm(join(data, 'audit'), { recursive: true }),
  },
  {
    what: 'a truncated file of entries',
    why: /truncated/,
    plant: ({ data }) => truncate(join(data, 'audit/entries'), 700),
  },
  {
    what: 'a flipped byte in the checkpoint',
    why: /checkpoint/,
    plant: async ({ data }) => {
      const path = join(data, 'audit/checkpoint');
      const bytes = await readFile(path);
      bytes[bytes.length - 20]! ^= 1;
      await writeFile(path, bytes);
    },
  },
  {
    what: 'the audit/ of another node',
    why: /checkpoint/,
    plant: async ({ data }, t) => {
      const other = join(await temporaryDir(t), 'node');
      await session(t, other, () => ron(t, ['keys', 'create', '--dir', other]));
      await rm(join(data, 'audit'), { recursive: true });
      await rename(join(other, 'kms/data/audit'), join(data, 'audit'));
    },
  },
];

suite('a damaged audit log', { concurrency: 2 }, () => {
  for (const { what, why, plant } of damages)
    test(`${what}: the node starts, and only signing stops`, async (t) => {
      const made = await site(t);
      await plant(made, t);
      // A write by one start could hide the problem from the next.
      for (let starts = 0; starts < 2; starts++)
        await session(t, made.dir, async (node) => {
          await node.process.until('the note', () => node.process.stderr.includes('kms is degraded'));
          assert.match(
            node.process.stderr,
            /^kms is degraded: audit_integrity \(kms refuses to sign: .*ron audit accept/m,
          );
          await assertOnlySigningStops(made, why);
        });
    });

  test('kms cannot start: the other services run with stored keys until it can', async (t) => {
    const { dir, data, address, run, file } = await site(t);
    await rename(join(data, 'kek'), join(data, 'kek.away'));
    await writeFile(join(data, 'kek'), `${'ab'.repeat(32)}\n`, { mode: 0o600 });
    await session(t, dir, async (node) => {
      assert.match(node.process.stderr, /^kms failed to start: it exited with code 69: .+\n +kms is restarted/m);
      const got = await run('get', address, '--output', '-');
      assert.equal(got.code, 0, got.stderr);
      assert.equal((await run('put', file)).code, 0);
      const doctor = await run('doctor');
      assert.equal(doctor.code, 1);
      assert.match(doctor.text, /kms fails to start and is restarted: read logs\/kms\.log/);
      await rename(join(data, 'kek.away'), join(data, 'kek'));
      await eventually('kms starts', async () => (await run('keys', 'list')).code === 0);
      assert.equal((await run('sign', file)).code, 0);
    });
  });

  test('kms cannot start and no keys are stored: the start fails', async (t) => {
    const { dir, data } = await site(t);
    await writeFile(join(data, 'kek'), `${'ab'.repeat(32)}\n`, { mode: 0o600 });
    await rm(join(dir, 'storage/auth/cache'));
    const ended = await ron(t, ['up', '--base-port', '0', '--dir', dir]);
    assert.equal(ended.code, 69, ended.stderr);
  });
});
