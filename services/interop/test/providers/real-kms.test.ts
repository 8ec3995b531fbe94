/** Secrets are wrapped by a real kms, with a capability for the tenant interop only. */
import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import { FileKeySource, mint } from '@ron/auth';
import { leaks } from '@ron/auth/testing';
import { KmsClient } from '@ron/client';
import { reachPrivately } from '@ron/client/node';
import { loadConfig } from '@ron/config';
import { Deadline, NEVER } from '@ron/kernel';
import { scopesOf, type ReceiptSignature, type Scope } from '@ron/proto';
import { tempDirFor } from '@ron/testkit';
import { ServiceProcess } from '@ron/testkit/service';
import { schema } from '../../src/config.ts';
import { KmsReceiptKey } from '../../src/receipts/kms-receipt-key.ts';
import { kmsSecrets, type SecretWrapper } from '../../src/providers/secrets/kms-secrets.ts';
import { KmsAccess } from '../../src/upstreams/kms-access.ts';
import { accepts, openTest, SECOND, SECRET } from '../../src/providers/testing/support.ts';

const MAIN = fileURLToPath(new URL('../../../kms/src/main.ts', import.meta.url));
const SCOPES = ['kms:create', 'kms:wrap', 'kms:unwrap', 'kms:sign', 'kms:read'] as const;
const GITHUB = { scheme: 'github', secret: SECRET } as const;

for (const secret of [SECRET, SECOND]) leaks.secret('a webhook secret', secret);

async function setUp(t: TestContext) {
  const dir = tempDirFor(t);
  const key_file = join(dir, 'keys');
  const socket = join(dir, 'kms.sock');
  const flags = [`--data_dir=${join(dir, 'kms')}`, `--auth.key_file=${key_file}`, `--server.socket=${socket}`];
  const start = () =>
    ServiceProcess.start({
      main: MAIN,
      flags: [...flags, '--server.bind=127.0.0.1:0'],
      env: { RON_KEK: '22'.repeat(32) },
    });
  let kms = await start();
  t.after(() => kms.kill());
  const mintFor = async (tenant: string, scopes: readonly Scope[] = SCOPES): Promise<string> => {
    await using keys = await FileKeySource.open({ path: key_file }, NEVER);
    const init = { audience: 'kms', scopes, caveats: [`tenant = ${tenant}`], ttl_ms: 3_600_000 } as const;
    return (await mint(keys, init, NEVER)).token;
  };
  const capability_file = join(dir, 'kms.cap');
  await writeFile(capability_file, await mintFor('interop'), { mode: 0o600 });
  const access = (): KmsAccess =>
    new KmsAccess({
      url: `unix:${socket}`,
      pin: undefined,
      capability_file,
      connect_ms: 250,
      call: async (op, signal, work) => {
        using deadline = Deadline.after(op, 20_000, { signal });
        return await deadline.run(work);
      },
    });
  const wrapper = (): SecretWrapper => kmsSecrets(access());
  const admin = async () =>
    new KmsClient({ ...reachPrivately(`unix:${socket}`), capability: await mintFor('interop', scopesOf('kms')) });
  return {
    dir: join(dir, 'interop'),
    capability_file,
    access,
    wrapper,
    admin,
    mintFor,
    kill: () => kms.kill(),
    restart: async () => void (kms = await start()),
  };
}

test('a secret is wrapped by one key of the tenant interop, and opens after a restart only while kms runs', async (t) => {
  const { dir, wrapper, admin, kill, restart } = await setUp(t);
  {
    await using open = await openTest({ dir, kms: wrapper(), caches: false });
    await open.providers.put('github', GITHUB, NEVER);
    await open.providers.rotate('github', { secret: SECOND }, NEVER);
  }
  const keys = await Array.fromAsync((await admin()).keys({ tenant: 'interop' }));
  assert.deepEqual(
    keys.map(({ kid, alg }) => [kid.split('/').slice(0, 2).join('/'), alg]),
    [['interop/webhooks', 'aes-256-gcm']],
  );
  await kill();
  await using open = await openTest({ dir, kms: wrapper(), caches: false });
  const { providers } = open;
  assert.match(
    providers.describe('github').problem!,
    /not unwrapped yet: kms cannot unwrap the secret \(unreachable\)/,
  );
  await assert.rejects(providers.put('slack', { scheme: 'slack', secret: SECRET }, NEVER), { code: 'not_ready' });
  await restart();
  await providers.reconcile('github', NEVER);
  for (const secret of [SECRET, SECOND]) assert.equal(await accepts(providers.get('github'), secret), true);
  leaks.shown('the file', (await readFile(join(dir, 'providers', 'github.sealed'))).toString('latin1'));
});

test('a later start uses the key that exists, also after its rotation; old secrets still open', async (t) => {
  const { wrapper, admin } = await setUp(t);
  const first = await wrapper().wrap('github', 1, Buffer.from(SECRET), NEVER);
  await (await admin()).rotateKey(first.kid);
  const second = await wrapper().wrap('github', 2, Buffer.from(SECOND), NEVER);
  assert.equal(second.kid.split('#')[0], first.kid.split('#')[0]);
  assert.notEqual(second.kid, first.kid);
  for (const [version, wrapped, secret] of [
    [1, first, SECRET],
    [2, second, SECOND],
  ] as const)
    assert.equal(Buffer.from(await wrapper().unwrap('github', version, wrapped, NEVER)).toString(), secret);
});

const nameOf = (kid: string): string => kid.split('#')[0]!;

test('a disabled key is replaced by a new one, the same for two starts; its secrets open once it is enabled', async (t) => {
  const { dir, wrapper, admin } = await setUp(t);
  const kms = await admin();
  const running = wrapper();
  const kids: string[] = [];
  for (const version of [1, 2, 3]) {
    const wrapped = await running.wrap('github', version, Buffer.from(SECRET), NEVER);
    kids.push(nameOf(wrapped.kid));
    await kms.disableKey(nameOf(wrapped.kid));
    await assert.rejects(running.unwrap('github', version, wrapped, NEVER), { code: 'conflict' });
  }
  assert.equal(new Set(kids).size, 3, 'each disabled key was replaced');
  const both = await Promise.all(
    [wrapper(), wrapper()].map((start) => start.wrap('github', 4, Buffer.from(SECRET), NEVER)),
  );
  assert.equal(both[0]!.kid, both[1]!.kid);
  assert.equal((await Array.fromAsync(kms.keys({ tenant: 'interop' }))).length, 4);

  {
    await using open = await openTest({ dir, kms: running, caches: false });
    await open.providers.put('github', GITHUB, NEVER);
    assert.equal(await accepts(open.providers.get('github'), SECRET), true);
  }
  await kms.disableKey(nameOf(both[0]!.kid));
  await using open = await openTest({ dir, kms: wrapper(), caches: false });
  const { providers } = open;
  assert.match(providers.describe('github').problem!, /cannot unwrap the secret \(its key is disabled/);
  await providers.put('other', { scheme: 'github', secret: SECOND }, NEVER);
  assert.equal(await accepts(providers.get('other'), SECOND), true);
  await kms.enableKey(nameOf(both[0]!.kid));
  await providers.reconcile('github', NEVER);
  assert.equal(await accepts(providers.get('github'), SECRET), true);
});

test('receipts are signed by a new key once theirs is disabled, also a root that the old one signed', async (t) => {
  const { access, admin } = await setUp(t);
  const kms = await admin();
  const key = new KmsReceiptKey(access());
  const root = 'ab'.repeat(32);
  const first = await key.sign(root, NEVER);
  assert.deepEqual(await key.sign(root, NEVER), first, 'a repeated request gets the same signature');
  await kms.disableKey(nameOf(first.kid));
  await assert.rejects(key.sign('cd'.repeat(32), NEVER), { code: 'conflict' });
  const second = await key.sign(root, NEVER);
  assert.notEqual(nameOf(second.kid), nameOf(first.kid));
  assert.equal(nameOf((await new KmsReceiptKey(access()).sign(root, NEVER)).kid), nameOf(second.kid));
});

test('a signature by another key than the requested one is refused', async (t) => {
  const { access, admin } = await setUp(t);
  const kms = await admin();
  const make = async (): Promise<string> =>
    nameOf((await kms.createKey({ tenant: 'interop', purpose: 'receipts', alg: 'hybrid' })).kid);
  const [one, other] = [await make(), await make()];
  const mixed = access();
  const run = mixed.run.bind(mixed);
  mixed.run = (op, signal, work) =>
    run(op, signal, (client, within) => {
      const sign = client.sign.bind(client);
      const swapped = (kid: string | undefined): string => (kid === one ? other : one);
      client.sign = (init, call) => sign({ ...init, kid: swapped(init.kid), op_id: 'another' }, call);
      return work(client, within);
    });
  await assert.rejects(new KmsReceiptKey(mixed).sign('ab'.repeat(32), NEVER), {
    code: 'integrity',
    message: /another key/,
  });
});

test('a signature that its key did not make, or that lacks a part, is refused', async (t) => {
  const { access } = await setUp(t);
  const root = 'ab'.repeat(32);
  type Sigs = readonly ReceiptSignature[];
  const changes: readonly ((sigs: Sigs) => Sigs)[] = [
    (sigs) => sigs.map((sig, at) => (at === 0 ? { ...sig, signature_b64: changed(sig.signature_b64) } : sig)),
    (sigs) => sigs.map((sig, at) => (at === 1 ? { ...sig, signature_b64: changed(sig.signature_b64) } : sig)),
    (sigs) => sigs.slice(1),
    (sigs) => [...sigs, sigs[0]!],
    (sigs) => sigs.map((sig) => ({ ...sig, kid: `${sig.kid}0` })),
  ];
  for (const change of changes) {
    const lying = access();
    const run = lying.run.bind(lying);
    lying.run = (op, signal, work) =>
      run(op, signal, (client, within) => {
        const sign = client.sign.bind(client);
        client.sign = async (init, call) => {
          const signed = await sign(init, call);
          return { ...signed, sigs: change(signed.sigs) };
        };
        return work(client, within);
      });
    await assert.rejects(new KmsReceiptKey(lying).sign(root, NEVER), { code: 'integrity' }, String(change));
  }
});

function changed(signature_b64: string): string {
  const bytes = Buffer.from(signature_b64, 'base64');
  bytes[10]! ^= 1;
  return bytes.toString('base64');
}

test('a wrapped secret opens for its provider and version only, and another tenant cannot open it', async (t) => {
  const { wrapper, capability_file, mintFor } = await setUp(t);
  const kms = wrapper();
  const wrapped = await kms.wrap('github', 1, Buffer.from(SECRET), NEVER);
  await assert.rejects(kms.unwrap('slack', 1, wrapped, NEVER), { code: 'validation' });
  await assert.rejects(kms.unwrap('github', 2, wrapped, NEVER), { code: 'validation' });
  // The capability is read before each call.
  await writeFile(capability_file, await mintFor('edge'), { mode: 0o600 });
  await assert.rejects(kms.unwrap('github', 1, wrapped, NEVER), { code: 'forbidden' });
});

test('a URL at which another user could listen is refused', () => {
  const init = {
    pin: undefined,
    capability_file: '/none',
    connect_ms: 1,
    call: () => Promise.reject(new Error('unused')),
  };
  assert.throws(() => new KmsAccess({ ...init, url: 'http://127.0.0.1:7105' }), { code: 'validation' });
});

test('the configuration refuses to store secrets nowhere', () => {
  const load = (...flags: string[]) => loadConfig({ schema, flags, env: {} });
  const kms = [
    '--auth.kms_url=unix:/run/kms.sock',
    '--auth.capability_file=/none',
    '--interop.kms_capability_file=/none',
  ];
  assert.throws(() => load('--data_dir=/none', '--secrets.cache=false'), /secrets\.cache/);
  assert.equal(load('--data_dir=/none', '--secrets.cache=false', ...kms).secrets.cache, false);
  assert.equal(load('--amnesia.enabled=true', '--secrets.cache=false').secrets.cache, false);
});
