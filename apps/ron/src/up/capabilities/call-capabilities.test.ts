import assert from 'node:assert/strict';
import { chmod, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { attenuate, Checker, FileKeySource, inspectToken, mint } from '@ron/auth';
import { installSched, realSched } from '@ron/kernel';
import type { AccessRequest } from '@ron/proto';
import type { Service } from '@ron/proto';
import { tempDirFor } from '@ron/testkit';
import { homeAt, type Home } from '../../home.ts';
import { plan } from '../plan.ts';
import type { Call, ServiceEntry } from '../table/service-entry.ts';
import { NodeCapabilities } from './node-capabilities.ts';
import { CALL_TTL_MS } from '../table/capability-files.ts';

const signal = new AbortController().signal;

const row = (name: Service, calls: readonly Call[]): ServiceEntry => ({
  name,
  main: '',
  calls,
  defaults: () => ({}),
  schema: () => Promise.reject(new Error('not needed')),
});

const SEND: Call = {
  to: 'mailbox',
  scopes: ['mailbox:send'],
  caveats: ['name ^= hooks.'],
  config: { url: 'mailbox.url', capability_file: 'mailbox.capability_file' },
};
const SIGN: Call = {
  to: 'kms',
  scopes: ['kms:sign', 'kms:read'],
  caveats: ['tenant = interop'],
  purpose: 'sign',
  config: { url: 'kms.url', capability_file: 'kms.capability_file' },
};
const DERIVE: Call = { to: 'kms', scopes: ['kms:audience'], caveats: ['label ^= audience/interop/'] };
const READ: Call = { to: 'storage', scopes: [], config: { url: 'storage.url' } };

const table = (calls: readonly Call[]): ServiceEntry[] => [
  row('interop', calls),
  row('mailbox', []),
  row('kms', []),
  row('storage', []),
];

async function homeOf(t: TestContext): Promise<Home> {
  const dir = tempDirFor(t);
  return homeAt(dir);
}

/** A node without kms, as `ron up` prepares it. */
async function prepare(home: Home, rows: readonly ServiceEntry[], only?: string): Promise<NodeCapabilities> {
  const services = await plan({ place: { home, base_port: 0, amnesia: false }, table: rows, only, env: {} });
  const capabilities = new NodeCapabilities(home, services, rows, { note: (text) => assert.fail(text) });
  await capabilities.prepare(signal);
  return capabilities;
}

const tokenIn = async (path: string): Promise<string> => (await readFile(path, 'utf8')).trim();

async function isAllowed(
  home: Home,
  audience: Service,
  token: string,
  request: Partial<AccessRequest>,
): Promise<boolean> {
  await using keys = await FileKeySource.open({ path: home.of(audience).keys, create: false }, signal);
  const checker = new Checker({ audience, keys });
  const common = { authorization: `Bearer ${token}`, source_ip: '127.0.0.1', body_bytes: 0 };
  return (await checker.checkHeaders({ ...common, scope: 'mailbox:send', ...request }, signal)).ok;
}

test('each call has its own file, which allows that call and nothing else', async (t) => {
  const home = await homeOf(t);
  await prepare(home, table([SEND, SIGN, DERIVE, READ]));
  const files = (await readdir(home.of('interop').dir)).toSorted();
  assert.deepEqual(files, ['keys', 'kms-sign.cap', 'kms.cap', 'mailbox.cap']);
  for (const file of files) assert.equal((await stat(join(home.of('interop').dir, file))).mode & 0o777, 0o600, file);
  for (const name of ['mailbox', 'kms', 'storage'] as const)
    assert.deepEqual(await readdir(home.of(name).dir), ['keys'], 'callees get no capability');

  const send = await tokenIn(home.of('interop').capabilityFor('mailbox'));
  assert.equal(inspectToken(send).subject, 'svc-interop');
  assert.equal(await isAllowed(home, 'mailbox', send, { facts: { name: 'hooks.github/' } }), true);
  assert.equal(await isAllowed(home, 'mailbox', send, { facts: { name: 'orders/' } }), false);
  assert.equal(await isAllowed(home, 'mailbox', send, { scope: 'mailbox:receive' }), false);
  assert.equal(await isAllowed(home, 'storage', send, { scope: 'storage:get' }), false);
  const sign = await tokenIn(home.of('interop').capabilityFor('kms', 'sign'));
  assert.equal(await isAllowed(home, 'kms', sign, { scope: 'kms:sign', facts: { tenant: 'interop' } }), true);
  assert.equal(await isAllowed(home, 'kms', sign, { scope: 'kms:sign', facts: { tenant: 'acme' } }), false);
});

test('the caller gets the flags for the socket and the file, the callee for its own socket; calls to stopped services are left out', async (t) => {
  const home = await homeOf(t);
  const rows = table([SEND, SIGN, READ]);
  const flagsOf = async (only?: string): Promise<Record<string, readonly string[]>> => {
    const planned = await plan({ place: { home, base_port: 0, amnesia: false }, table: rows, only, env: {} });
    return Object.fromEntries(planned.map(({ entry, flags }) => [entry.name, flags]));
  };
  const socketOf = (name: string): string => `--server.socket=${join(home.dir, 'run', `${name}.sock`)}`;
  const all = await flagsOf();
  assert.deepEqual(all['interop'], [
    `--mailbox.url=unix:${join(home.dir, 'run/mailbox.sock')}`,
    `--mailbox.capability_file=${join(home.dir, 'interop/mailbox.cap')}`,
    `--kms.url=unix:${join(home.dir, 'run/kms.sock')}`,
    `--kms.capability_file=${join(home.dir, 'interop/kms-sign.cap')}`,
    `--storage.url=unix:${join(home.dir, 'run/storage.sock')}`,
    socketOf('interop'),
  ]);
  assert.deepEqual(all['mailbox'], [socketOf('mailbox')]);
  assert.deepEqual(await flagsOf('interop,storage'), {
    interop: [`--storage.url=unix:${join(home.dir, 'run/storage.sock')}`, socketOf('interop')],
    storage: [socketOf('storage')],
  });
  await prepare(home, rows, 'interop,storage');
  assert.deepEqual(await readdir(home.of('interop').dir), ['keys']);
  const required = table([{ ...SEND, isRequired: true }]);
  await assert.rejects(prepare(home, required, 'interop'), /--only: interop requires mailbox; add it/);
});

test('a table with a cycle starts nothing', async (t) => {
  const home = await homeOf(t);
  const rows = [row('interop', [SEND]), row('mailbox', [{ to: 'interop', scopes: [] }])];
  await assert.rejects(prepare(home, rows), /interop calls mailbox calls interop: a cycle/);
  assert.deepEqual(await readdir(home.dir), []);
});

test('a good file is kept; a file that differs from the table or does not verify is replaced', async (t) => {
  const home = await homeOf(t);
  const path = home.of('interop').capabilityFor('mailbox');
  await prepare(home, table([SEND]));
  const first = await tokenIn(path);
  const capabilities = await prepare(home, table([SEND]));
  await capabilities.renew(signal);
  assert.equal(await tokenIn(path), first);

  const changes: Partial<Call>[] = [
    { caveats: ['name ^= hooks.', 'rate <= 10/s'] },
    { caveats: [] },
    { scopes: ['mailbox:send', 'mailbox:read'] },
    { scopes: ['mailbox:send'] },
  ];
  let before = first;
  for (const change of changes) {
    await prepare(home, table([{ ...SEND, ...change }]));
    const after = await tokenIn(path);
    assert.notEqual(after, before, JSON.stringify(change));
    const { texts, scopes } = inspectToken(after);
    assert.deepEqual(texts.slice(3), change.caveats ?? SEND.caveats);
    assert.deepEqual(scopes, change.scopes ?? SEND.scopes);
    before = after;
  }
  await using keys = await FileKeySource.open({ path: home.keys, create: false }, signal);
  const alike = { audience: 'mailbox', scopes: SEND.scopes, caveats: SEND.caveats!, ttl_ms: CALL_TTL_MS } as const;
  const foreign = (await mint(keys, { ...alike, subject: 'svc-edge' }, signal)).token;
  for (const bad of [attenuate(before, ['bytes <= 1']), foreign, 'AAAA']) {
    await writeFile(path, `${bad}\n`, { mode: 0o600 });
    await capabilities.renew(signal);
    assert.notEqual(await tokenIn(path), bad);
  }
  before = await tokenIn(path);
  await keys.rotate(signal);
  await capabilities.renew(signal);
  assert.notEqual(await tokenIn(path), before, 'the key was rotated');
  await chmod(path, 0o644);
  await assert.rejects(capabilities.renew(signal), /chmod 600/);
});

test('a capability of a call lives for an hour, is renewed well before, and replaced after a suspension of hours', async (t) => {
  const home = await homeOf(t);
  const path = home.of('interop').capabilityFor('mailbox');
  const capabilities = await prepare(home, table([SEND]));
  const first = await tokenIn(path);
  assert.ok(inspectToken(first).expires_ms - Date.now() <= CALL_TTL_MS);
  const renewedAfter = async (minutes: number): Promise<string> => {
    const replaced = installSched({ ...realSched, wall_ms: () => realSched.wall_ms() + minutes * 60_000 });
    try {
      await capabilities.renew(signal);
      return await tokenIn(path);
    } finally {
      installSched(replaced);
    }
  };
  assert.equal(await renewedAfter(35), first);
  const second = await renewedAfter(45);
  assert.notEqual(second, first);
  const third = await renewedAfter(8 * 60);
  assert.ok(inspectToken(third).expires_ms > Date.now() + 8 * 3_600_000);
});

test('the capability file of a dropped call is removed', async (t) => {
  const home = await homeOf(t);
  await prepare(home, table([SEND, SIGN]));
  await writeFile(home.of('kms').owner, 'AAAA\n', { mode: 0o600 });
  await prepare(home, table([SEND]));
  assert.deepEqual((await readdir(home.of('interop').dir)).toSorted(), ['keys', 'mailbox.cap']);
  assert.ok((await readdir(home.of('kms').dir)).includes('owner.cap'), 'the capability of the owner is not a call');
});
