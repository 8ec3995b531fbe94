/** A rollback, truncation or modification is detected: at the start, by the full audit, or by a witness. */
import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { cp, readdir, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { dirSource, verifyLog } from '@ron/tlog';
import { startWitness } from '@ron/tlog/testing';
import { eventually, tempDir } from '@ron/testkit';
import { assertRefusal, type Reply } from '@ron/testkit/service';
import { B3, startService, type TestKms } from './support.ts';

const sign = (kms: TestKms, kid: string, more: object = {}): Promise<Reply> =>
  kms.post('/sign', { kid, payload_b3: B3, ...more });

/** A service that signed a few payloads and shut down cleanly; returns its directory and a signature to verify. */
async function used(dir: string): Promise<{ kid: string; sigs: unknown }> {
  await using kms = await startService({ dir });
  const kid = await kms.create('ed25519');
  const { sigs } = (await sign(kms, kid)).json;
  for (let at = 0; at < 20; at++) await sign(kms, kid);
  await sign(kms, kid, { wait: 'checkpoint' });
  await kms.kms.drain();
  return { kid, sigs };
}

/** Asserts that kms runs and verifies, is not ready for signing, states why, and signs nothing. */
async function assertRefusesToSign(
  dir: string,
  { kid, sigs }: { kid: string; sigs: unknown },
  why: RegExp,
): Promise<void> {
  await using kms = await startService({ dir });
  const refused = await sign(kms, kid);
  assertRefusal(refused, 503, 'audit_integrity');
  assert.match(refused.json.detail, why);
  const ready = await kms.send('GET', '/readyz?lane=sign');
  assert.equal(ready.status, 503);
  assert.match(ready.json.detail, why);
  assert.match(ready.json.detail, /ron audit accept/, 'it names the command');
  assert.equal((await kms.send('GET', '/readyz')).status, 200, 'other work continues');
  assert.ok((await kms.post('/verify', { kid, payload_b3: B3, sigs })).json.ok, 'verification continues');
  assert.ok((await kms.metric('kms_audit_integrity_failed_total')) > 0);
}

const changes: readonly { what: string; why: RegExp; plant: (dir: string, copy: string) => Promise<void> }[] = [
  {
    what: 'the log was truncated',
    why: /./,
    plant: async (dir) => truncate(join(dir, 'audit/entries'), 1000),
  },
  {
    what: 'the log was rolled back',
    why: /./,
    plant: async (dir, copy) => replace(dir, copy, 'audit'),
  },
  {
    what: 'the store was rolled back',
    why: /vault was rolled back/,
    plant: async (dir, copy) => replace(dir, copy, 'vault'),
  },
  {
    what: 'the store and the public checkpoint were rolled back',
    why: /after the last clean shutdown/,
    plant: async (dir, copy) => replace(dir, copy, 'vault', 'audit/checkpoint'),
  },
  {
    what: 'the log was removed',
    why: /audit is missing/,
    plant: async (dir) => rm(join(dir, 'audit'), { recursive: true }),
  },
];

/** The hash of each file that is evidence; locks and cached capability keys are not. */
async function everyByte(dir: string): Promise<Record<string, string>> {
  const names = await readdir(dir, { recursive: true, withFileTypes: true });
  const files = names.filter((each) => each.isFile()).map((each) => relative(dir, join(each.parentPath, each.name)));
  const kept = files.filter((name) => /^(?:vault\/data\.mdb|audit\/.*)$/.test(name) && !name.endsWith('lock'));
  const hashes = kept.toSorted().map(async (name) => [name, hash('sha256', await readFile(join(dir, name)))]);
  return Object.fromEntries(await Promise.all(hashes)) as Record<string, string>;
}

async function replace(dir: string, copy: string, ...names: string[]): Promise<void> {
  for (const name of names) {
    await rm(join(dir, name), { recursive: true });
    await cp(join(copy, name), join(dir, name), { recursive: true });
  }
}

for (const { what, why, plant } of changes) {
  test(`${what}: nothing is signed`, async () => {
    await using temp = await tempDir();
    const [dir, copy] = [join(temp.path, 'data'), join(temp.path, 'copy')];
    const before = await used(dir);
    await cp(dir, copy, { recursive: true });
    {
      await using kms = await startService({ dir });
      for (let at = 0; at < 3; at++) {
        await sign(kms, await kms.create('ed25519'), { op_id: `op-${at}`, wait: 'checkpoint' });
      }
      await kms.kms.drain();
    }
    await plant(dir, copy);
    const planted = await everyByte(dir);
    // A write by one start could hide the problem from the next.
    for (let starts = 0; starts < 2; starts++) await assertRefusesToSign(dir, before, why);
    assert.deepEqual(await everyByte(dir), planted, 'every file is unchanged');
  });
}

/** The test witness speaks plain HTTP on loopback. */
const witnessFlags = ({ url, vkey }: { url: string; vkey: string }): string[] => [
  `--audit.witness_url=${url}`,
  `--audit.witness_key=${vkey}`,
  '--egress.networks=127.0.0.0/8',
];

test('the full audit detects a flipped byte anywhere in the log', async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  await used(dir);
  const vkeys = (await readFile(join(dir, 'audit/vkeys'), 'utf8')).trim().split('\n');
  const check = async () => {
    await using source = await dirSource(join(dir, 'audit'));
    return await verifyLog(source, vkeys, { signal: NEVER });
  };
  assert.ok((await check()).ok);
  const file = join(dir, 'audit/entries');
  const whole = await readFile(file);
  for (const at of [3, 100, Math.floor(whole.length / 2), whole.length - 1]) {
    const broken = Buffer.from(whole);
    broken[at]! ^= 1;
    await writeFile(file, broken);
    assert.equal((await check()).ok, false, `byte ${at}`);
  }
  await writeFile(file, whole);
  assert.ok((await check()).ok);
});

test('a crash between append and checkpoint does no harm: the tail is accepted and signed', async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  const copy = join(temp.path, 'copy');
  const { kid } = await used(dir);
  {
    await using kms = await startService({ dir, flags: ['--audit.checkpoint_interval=1h'] });
    for (let at = 0; at < 5; at++) assert.equal((await sign(kms, kid)).status, 200);
    // The state after a power cut: entries are synced, the checkpoint is old.
    await cp(dir, copy, { recursive: true });
  }
  const last = async (kms: TestKms, back: number): Promise<string> => {
    const log = kms.kms.vault.log!;
    const texts = await Promise.all(
      Array.from({ length: log.size }, async (_, at) => Buffer.from(await log.entry(at)).toString()),
    );
    // At each start kms derives its own keys.
    return texts.filter((text) => !text.includes('"subject":"svc-kms"')).at(-back)!;
  };
  {
    await using again = await startService({ dir: copy });
    assert.equal((await sign(again, kid, { wait: 'checkpoint' })).status, 200);
    assert.equal((await again.send('GET', '/readyz')).status, 200);
    assert.match(await last(again, 2), /^\{"from":\d+,"op":"interrupted","to":\d+\}$/, 'the log records the crash');
    await again.kms.drain();
  }
  await using orderly = await startService({ dir: copy });
  assert.equal((await sign(orderly, kid, { wait: 'checkpoint' })).status, 200);
  assert.match(await last(orderly, 2), /"op":"sign"/, 'the log records no crash after a clean shutdown');
});

test('a full rollback is detected by a witness only, and then nothing is signed', async () => {
  await using temp = await tempDir();
  const [dir, copy] = [join(temp.path, 'data'), join(temp.path, 'copy')];
  const { kid } = await used(dir);
  await cp(dir, copy, { recursive: true });
  const vkeys = (await readFile(join(dir, 'audit/vkeys'), 'utf8')).trim().split('\n');
  const origin = vkeys[0]!.split('+')[0]!;
  await using witness = await startWitness(origin, vkeys);
  const flags = witnessFlags(witness);
  {
    await using kms = await startService({ dir, flags });
    const { rollback_protection, rollback_unseen } = (await kms.send('GET', '/version')).json;
    assert.equal(rollback_protection, 'witness');
    assert.match(rollback_unseen as string, /while the witness is away.*; one record of the store/);
    for (let at = 0; at < 5; at++) await sign(kms, kid);
    const { size = 0 } = (await witness.latest()) ?? {};
    assert.equal((await sign(kms, kid, { wait: 'checkpoint' })).status, 200);
    // A response does not wait for the witness.
    await eventually('the witness has seen the new entries', async () => (await witness.latest())!.size > size);
    await kms.kms.drain();
  }
  await rm(dir, { recursive: true });
  await cp(copy, dir, { recursive: true });
  {
    await using kms = await startService({ dir });
    for (const path of ['/version', '/readyz']) {
      const recorded = (await kms.send('GET', path)).text;
      assert.match(recorded, /"rollback_protection":"keystore"/);
      assert.match(recorded, /"rollback_unseen":"a rollback of all files together.*; one record of the store/);
    }
    assert.equal((await sign(kms, kid)).status, 200, 'the rollback cannot be detected');
  }
  await rm(dir, { recursive: true });
  await cp(copy, dir, { recursive: true });
  const restored = await everyByte(dir);
  for (let starts = 0; starts < 2; starts++) {
    await using kms = await startService({ dir, flags });
    // The witness is contacted before anything is signed.
    assertRefusal(await sign(kms, kid), 503, 'audit_integrity');
    assert.equal((await kms.send('GET', '/readyz?lane=sign')).status, 503);
  }
  assert.deepEqual(await everyByte(dir), restored, 'every file is unchanged');
});

test('an invalid or silent witness stops no request, and readiness reports it', async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  const { kid } = await used(dir);
  const vkeys = (await readFile(join(dir, 'audit/vkeys'), 'utf8')).trim().split('\n');
  await using witness = await startWitness(vkeys[0]!.split('+')[0]!, vkeys);
  const flags = witnessFlags(witness);
  witness.override = { status: 409, text: 'a great many\n' };
  await using kms = await startService({ dir, flags });
  assert.equal((await sign(kms, kid)).status, 200);
  const ready = await kms.send('GET', '/readyz');
  assert.equal(ready.status, 200);
  assert.match(ready.text, /returned no valid size/);
  witness.override = undefined;
  await eventually('the submission is retried', async () => (await witness.latest()) !== undefined);
  assert.equal((await sign(kms, kid, { wait: 'checkpoint' })).status, 200);
});

test('a witness in a network that is not allowed is not called, and readiness states the reason', async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  const { kid } = await used(dir);
  const vkeys = (await readFile(join(dir, 'audit/vkeys'), 'utf8')).trim().split('\n');
  await using witness = await startWitness(vkeys[0]!.split('+')[0]!, vkeys);
  const flags = witnessFlags(witness).filter((flag) => !flag.includes('networks'));
  await using kms = await startService({ dir, flags });
  assert.equal((await sign(kms, kid)).status, 200);
  assert.match((await kms.send('GET', '/readyz')).text, /loopback and its network is not opened in the configuration/);
  assert.deepEqual(witness.answers, []);
});
