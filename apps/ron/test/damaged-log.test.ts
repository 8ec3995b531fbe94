/** A damaged audit log stops signing and nothing else; a kms that cannot start stops no other service. */
import assert from 'node:assert/strict';
import { cp, readFile, rename, rm, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, suite, test, type TestContext } from 'node:test';
import { eventually, type After } from '@ron/testkit';
import { CleanUps, command, Process, ron, temporaryDir, type Ended } from './support.ts';

interface Site {
  readonly dir: string;
  readonly data: string;
  /** A copy of the data of kms before its last operations. */
  readonly copy: string;
  readonly address: string;
  readonly kid: string;
  readonly file: string;
  readonly run: (...args: string[]) => Promise<Ended>;
}

const cleanUps = new CleanUps();
after(() => cleanUps.run());
/** Made once; each test works with a copy. */
let made: Promise<{ readonly work: string; readonly address: string; readonly kid: string }> | undefined;

/** A stopped node with an object and a key that signed, and a copy of kms/data from before the last operations. */
async function site(t: TestContext): Promise<Site> {
  made ??= make();
  const { work: template, address, kid } = await made;
  const work = await temporaryDir(t);
  await cp(template, work, { recursive: true });
  const dir = join(work, 'node');
  const volumes = join(dir, 'storage/volumes.json');
  await writeFile(volumes, (await readFile(volumes, 'utf8')).replaceAll(template, work));
  const run = (...args: string[]): Promise<Ended> => command([...args, '--dir', dir]);
  return { dir, data: join(dir, 'kms/data'), copy: join(work, 'copy'), address, kid, file: join(work, 'file'), run };
}

async function make(): Promise<{ work: string; address: string; kid: string }> {
  const work = await temporaryDir(cleanUps);
  const dir = join(work, 'node');
  const file = join(work, 'file');
  await writeFile(file, 'hello');
  const run = async (...args: string[]): Promise<string> => {
    const ended = await command([...args, '--dir', dir]);
    assert.equal(ended.code, 0, ended.stderr);
    return ended.text.trim().split(/\s/)[0]!;
  };
  const facts = await session(cleanUps, dir, ALL, async () => {
    const kid = await run('keys', 'create', '--alg', 'ed25519');
    await run('sign', file, '--key', kid);
    return { kid, address: await run('put', file) };
  });
  await cp(join(dir, 'kms/data'), join(work, 'copy'), { recursive: true });
  await session(cleanUps, dir, KMS, async () => {
    await run('sign', file, '--key', facts.kid);
    await run('keys', 'create', '--alg', 'ed25519', '--tenant', 'late');
  });
  return { work, ...facts };
}

const ALL: readonly string[] = [];
const KMS: readonly string[] = ['--only', 'kms'];

/** Runs a node for the time of `work`. */
async function session<T>(
  t: After,
  dir: string,
  flags: readonly string[],
  work: (node: Process) => Promise<T>,
): Promise<T> {
  const node = new Process(t, ['up', '--base-port', '0', '--dir', dir, ...flags]);
  await node.until('ready', () => node.stdout.includes('Ctrl-C'));
  try {
    return await work(node);
  } finally {
    node.kill('SIGTERM');
    assert.equal((await node.ended).code, 0, node.stderr);
  }
}

/** Storage and the checking of capabilities work. */
async function assertStorageWorks({ run, address, file }: Site): Promise<void> {
  const got = await run('get', address, '--output', `${file}.got`);
  assert.equal(got.code, 0, got.stderr);
  assert.equal(await readFile(`${file}.got`, 'utf8'), 'hello');
  assert.equal((await run('put', file)).code, 0);
}

/** Verification and the checking of capabilities work; signing states the problem. */
async function assertOnlySigningStops({ run, kid, file }: Site, why: RegExp): Promise<void> {
  assert.equal((await run('verify', file, '--key', kid)).code, 0);
  const signed = await run('sign', file, '--key', kid);
  assert.equal(signed.code, 69, signed.stderr);
  assert.match(signed.stderr, /kms refuses to sign/);
  assert.match(signed.stderr, why);
  assert.match(signed.stderr, /ron audit accept/);
  const doctor = await run('doctor');
  assert.match(doctor.text, /kms .* degraded: audit_integrity \(kms refuses to sign/);
}

interface Damage {
  readonly what: string;
  readonly why: RegExp;
  /** Whether all services are started. The kind of damage makes no difference to the others: kms serves their keys. */
  readonly isWhole?: true;
  readonly plant: (site: Site, t: TestContext) => Promise<void>;
}

const damages: readonly Damage[] = [
  {
    what: 'an older audit/',
    why: /truncated|rolled back/,
    isWhole: true,
    plant: async ({ data, copy }) => {
      await rm(join(data, 'audit'), { recursive: true });
      await cp(join(copy, 'audit'), join(data, 'audit'), { recursive: true });
    },
  },
  {
    what: 'an older store',
    why: /vault was rolled back/,
    isWhole: true,
    plant: async ({ data, copy }) => {
      await rm(join(data, 'vault'), { recursive: true });
      await cp(join(copy, 'vault'), join(data, 'vault'), { recursive: true });
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
      await session(t, other, KMS, () => command(['keys', 'create', '--dir', other]));
      await rm(join(data, 'audit'), { recursive: true });
      await rename(join(other, 'kms/data/audit'), join(data, 'audit'));
    },
  },
];

suite('a damaged audit log', { concurrency: 2 }, () => {
  for (const { what, why, isWhole, plant } of damages)
    test(`${what}: the node starts, and only signing stops`, async (t) => {
      const damaged = await site(t);
      await plant(damaged, t);
      await session(t, damaged.dir, isWhole === true ? ALL : KMS, async (node) => {
        await node.until('the note', () => node.stderr.includes('kms is degraded'));
        assert.match(node.stderr, /^kms is degraded: audit_integrity \(kms refuses to sign: .*ron audit accept/m);
        if (isWhole === true) await assertStorageWorks(damaged);
        await assertOnlySigningStops(damaged, why);
        if (what !== 'a missing audit/') return;
        const accepted = await damaged.run('audit', 'accept', '--reason', 'the disk failed', '--yes');
        assert.match(accepted.text, /^former log +none was found$/m, accepted.stderr);
      });
    });

  test('ron audit accept goes on with a new log, without a restart of the node', async (t) => {
    const damaged = await site(t);
    const { dir, data, kid, file, run } = damaged;
    await damages[0]!.plant(damaged, t);
    await session(t, dir, KMS, async (node) => {
      assert.equal((await run('audit', 'accept', '--yes')).code, 64, 'a reason is required');
      assert.equal((await run('audit', 'accept', '--reason', 'x')).code, 64, 'without a terminal --yes is required');
      const accepted = await run('audit', 'accept', '--reason', 'the disk failed', '--yes');
      assert.equal(accepted.code, 0, accepted.stderr);
      assert.match(accepted.stderr, /^problem +.*truncated/m);
      assert.match(accepted.stderr, /^effect +entries \d+ to \d+ are missing from the log/m);
      assert.match(accepted.text, /^signing +works$/m);
      assert.match(node.stderr, /^kms exited with code 0; restarting/m);
      assert.equal((await run('sign', file, '--key', kid)).code, 0);
      const again = await run('audit', 'accept', '--reason', 'x', '--yes');
      assert.equal(again.code, 1, again.stderr);
      assert.match(again.stderr, /is sound: there is no damage to accept/);
    });
    const verified = await run('audit', 'verify', '--json');
    assert.match((JSON.parse(verified.text) as { origin: string }).origin, /\/[0-9a-f]{16}$/);
    const archive = await command(['audit', 'verify', join(data, 'audit.1')]);
    assert.equal(archive.code, 0, archive.stderr);
  });

  test('kms cannot start: the other services run with stored keys until it can', async (t) => {
    const { dir, data, address, kid, run, file } = await site(t);
    await rename(join(data, 'kek'), join(data, 'kek.away'));
    await writeFile(join(data, 'kek'), `${'ab'.repeat(32)}\n`, { mode: 0o600 });
    await session(t, dir, ALL, async (node) => {
      assert.match(node.stderr, /^kms failed to start: it exited with code 69: .+\n +kms is restarted/m);
      const got = await run('get', address, '--output', `${file}.got`);
      assert.equal(got.code, 0, got.stderr);
      assert.equal((await run('put', file)).code, 0);
      const doctor = await run('doctor');
      assert.equal(doctor.code, 1);
      assert.match(doctor.text, /kms fails to start and is restarted: read logs\/kms\.log/);
      assert.doesNotMatch(doctor.text, /key file/, 'a node with kms has none');
      await rename(join(data, 'kek.away'), join(data, 'kek'));
      await eventually('kms starts', async () => (await run('keys', 'list')).code === 0);
      assert.equal((await run('sign', file, '--key', kid)).code, 0);
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
