/** Files of the earlier format are converted at the first start, at which any crash does no harm. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFile, cp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { tempDir } from '@ron/testkit';
import { isRonError, NEVER } from '@ron/kernel';
import { realFileSystem } from '@ron/log';
import { upgradeIfOld } from '../src/vault/upgrade/upgrade.ts';
import { openVaultStore } from '../src/vault/vault.ts';
import { B3, KEK, path, startService, type TestKms } from './support.ts';

/** Made by the last version that wrote these files, with the key `KEK`. */
const FIXTURE = new URL('./fixtures/earlier-format', import.meta.url).pathname;
const EARLIER = ['anchor', 'custody', 'index', 'ops'];

interface Expected {
  readonly name: string;
  readonly aes: string;
  readonly mac: string;
  readonly wrapped: { readonly wrapped_b64: string };
  readonly derived: { readonly secret_b64: string };
  readonly first: object;
  readonly second: object;
  readonly hybrid: object;
  readonly size: number;
}

async function earlier(dir: string): Promise<Expected> {
  await cp(FIXTURE, dir, { recursive: true });
  await rm(join(dir, 'expected.json'));
  return JSON.parse(await readFile(join(FIXTURE, 'expected.json'), 'utf8')) as Expected;
}

const sha = async (dir: string): Promise<Record<string, string>> => {
  const files = (await readdir(dir, { recursive: true, withFileTypes: true })).filter((each) => each.isFile());
  const named = files.map((each) => join(each.parentPath, each.name)).filter((name) => !/lock$|\/kek$/.test(name));
  return Object.fromEntries(
    await Promise.all(named.toSorted().map(async (name) => [name.slice(dir.length), await readFile(name, 'base64')])),
  ) as Record<string, string>;
};

/** Everything that the earlier version stored is there and works. */
async function assertConverted(kms: TestKms, dir: string, expected: Expected): Promise<void> {
  const { name, aes, mac, size } = expected;
  assert.equal(kms.kms.vault.problem, undefined);
  assert.ok(kms.kms.vault.log!.size >= size);
  for (const signed of [expected.first, expected.second, expected.hybrid] as { kid: string; sigs: unknown }[]) {
    const { kid, sigs } = signed;
    assert.ok((await kms.post('/verify', { kid, payload_b3: B3, sigs })).json.ok, kid);
  }
  const signed = await kms.post('/sign', { kid: name, payload_b3: B3, wait: 'checkpoint' });
  assert.equal(signed.status, 200, signed.text);
  assert.equal(signed.json.kid, `${name}#v4`);
  const { wrapped_b64 } = expected.wrapped;
  const unwrapped = await kms.post('/unwrap', { kid: aes, wrapped_b64 });
  assert.equal(Buffer.from(unwrapped.json.plaintext_key_b64, 'base64').toString(), 'a secret', unwrapped.text);
  assert.equal(
    (await kms.post('/derive', { kid: mac, label: 'a/label' })).json.secret_b64,
    expected.derived.secret_b64,
  );
  const key = (await kms.get(`/keys/${path(name)}`)).json;
  assert.deepEqual(key.versions, ['#v1', '#v2', '#v3', '#v4']);
  assert.equal(key.deleting[0].version, '#v2');
  assert.equal(key.rotate, true, 'keys of before the policy may be rotated');
  const { store } = kms.kms.vault;
  const ops = store
    .range('ops', { start: '-', end: 'zz', limit: 100 })
    .map(({ value }) => Buffer.from(value).toString());
  assert.equal(ops.length, 5);
  assert.ok(ops.some((op) => op.includes(JSON.stringify(expected.first))));
  assert.deepEqual([store.count('op_times'), store.count('made')], [5, 0]);
  const root = JSON.parse(Buffer.from(store.get('meta', 'audience_root')!).toString()) as { versions: object[] };
  assert.deepEqual(
    [root.versions.length, store.count('keys'), store.count('versions')],
    [1, 4, 7],
    'the root is not among the keys',
  );
  const names = await readdir(dir);
  assert.deepEqual(
    names.filter((each) => EARLIER.includes(each) || each.includes('vault')),
    ['vault'],
  );
}

test('keys, versions, secrets, counters, operations and the log are as before', async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  const expected = await earlier(dir);
  for (let starts = 0; starts < 2; starts++) {
    await using kms = await startService({ dir });
    await assertConverted(kms, dir, expected);
    const wrapped = (await kms.post('/wrap', { kid: expected.aes, plaintext_key_b64: 'YQ==' })).json.wrapped_b64;
    const number = Buffer.from(wrapped, 'base64').readUInt32BE(9);
    assert.equal(number, 1024 * (starts + 1), 'no nonce number is used again');
    await kms.kms.drain();
  }
});

test('a wrong key changes nothing, and files that are not from one moment are reported and not converted', async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  const expected = await earlier(dir);
  const before = await sha(dir);
  await assert.rejects(startService({ dir, env: { RON_KEK: '11'.repeat(32) } }), (error) =>
    isRonError(error, 'not_ready'),
  );
  assert.deepEqual(await sha(dir), before);
  for (const name of ['anchor', 'custody', 'index']) {
    const other = await readFile(join(dir, name === 'index' ? 'custody' : 'index'));
    const own = await readFile(join(dir, name));
    for (const harm of [other, own.subarray(0, own.length - 1), undefined]) {
      if (harm === undefined) await rm(join(dir, name));
      else await writeFile(join(dir, name), harm);
      await assert.rejects(startService({ dir }), (error) => isRonError(error) && error.message.includes(name), name);
      assert.equal((await readdir(dir)).includes('vault'), false);
      await writeFile(join(dir, name), own);
    }
  }
  const [segment] = await readdir(join(dir, 'ops/segments'));
  const own = await readFile(join(dir, 'ops/segments', segment!));
  await writeFile(join(dir, 'ops/segments', segment!), own.subarray(0, 640));
  await assert.rejects(startService({ dir }), /ops lacks \d of 5 completed operations/);
  await writeFile(join(dir, 'ops/segments', segment!), own);
  await using kms = await startService({ dir });
  await assertConverted(kms, dir, expected);
});

test('a log that was rolled back is found after the conversion', async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  await earlier(dir);
  const entries = await readFile(join(dir, 'audit/entries'));
  await writeFile(join(dir, 'audit/entries'), entries.subarray(0, 1000));
  for (let starts = 0; starts < 2; starts++) {
    await using kms = await startService({ dir });
    assert.notEqual(kms.kms.vault.problem, undefined);
  }
});

test('files of the earlier format beside a store that was not made from them stay', async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  await (await startService({ dir }))[Symbol.asyncDispose]();
  await cp(join(FIXTURE, 'anchor'), join(dir, 'anchor'));
  await (await startService({ dir }))[Symbol.asyncDispose]();
  assert.ok((await readdir(dir)).includes('anchor'));
});

test('files that the earlier version used again after a conversion that was killed are not removed', async () => {
  await using temp = await tempDir();
  const dir = join(temp.path, 'data');
  await earlier(dir);
  const unlock = { kek: Buffer.from(KEK, 'hex') };
  const open = (at: string) => openVaultStore(at, unlock, NEVER);
  const onStep = (step: string): void => {
    if (step === 'renamed') throw new Error('killed');
  };
  const init = { dir, fs: realFileSystem, unlock, open, warn: () => undefined, signal: NEVER };
  await assert.rejects(upgradeIfOld({ ...init, onStep }), /killed/);
  // The earlier version writes its anchor at each start. Any change stands for that here.
  await appendFile(join(dir, 'anchor'), 'x');
  const before = await sha(dir);
  await assert.rejects(startService({ dir }), (error) => isRonError(error, 'integrity'));
  const after = await sha(dir);
  for (const name of Object.keys(before).filter((each) => !each.startsWith('/vault'))) {
    assert.equal(after[name], before[name], name);
  }
});

const CHILD = `
import { flushCompileCache } from 'node:module';
const [upgrade, vault, log, dir, at] = process.argv.slice(1);
const { upgradeIfOld } = await import(upgrade);
const { openVaultStore } = await import(vault);
const { realFileSystem: fs } = await import(log);
flushCompileCache();
const { signal } = new AbortController();
const unlock = { kek: new Uint8Array(32) };
let steps = 0;
const onStep = (step) => {
  process.stdout.write(step + '\\n');
  if (++steps === Number(at)) process.kill(process.pid, 'SIGKILL');
};
await upgradeIfOld({ dir, fs, unlock, open: (at) => openVaultStore(at, unlock, signal), warn: () => {}, signal, onStep });
process.stdout.write('end\\n');`;

test('kill -9 after each step leaves files that the next start converts', { timeout: 300_000 }, async () => {
  assert.equal(KEK, '00'.repeat(32));
  const module = (name: string): string => new URL(name, import.meta.url).href;
  const modules = ['../src/vault/upgrade/upgrade.ts', '../src/vault/vault.ts', '../../../packages/log/src/index.ts'];
  await using cache = await tempDir();
  // Each child loads the same modules: only the first one compiles them.
  const env = { ...process.env, NODE_COMPILE_CACHE: cache.path };
  for (let at = 1, isOver = false; !isOver; at++) {
    assert.ok(at < 40);
    await using temp = await tempDir();
    const dir = join(temp.path, 'data');
    const expected = await earlier(dir);
    const args = ['--input-type=module', '-e', CHILD, ...modules.map(module), dir, String(at)];
    const child = spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'inherit'] });
    let told = '';
    child.stdout.on('data', (chunk: Buffer) => (told += chunk.toString()));
    await once(child, 'close');
    isOver = told.endsWith('end\n');
    if (isOver) assert.ok(at >= 12, told);
    await using kms = await startService({ dir });
    await assertConverted(kms, dir, expected);
  }
});
