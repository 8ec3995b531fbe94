import assert from 'node:assert/strict';
import { readFile, rm, stat, writeFile } from 'node:fs/promises';
import { test, type TestContext } from 'node:test';
import { attenuate, Checker, FileKeySource, inspectToken } from '@ron/auth';
import { installSched, realSched } from '@ron/kernel';
import type { Service } from '@ron/proto';
import { tempDirFor } from '@ron/testkit';
import { homeAt, type Home } from '../../home.ts';
import type { ServiceEntry } from '../table/service-entry.ts';
import { ROOT_TTL_MS } from '../table/capability-files.ts';
import { prepareKeys, renewByKeyFile } from './root-capability.ts';

const signal = new AbortController().signal;
const DAY_MS = 24 * 3600 * 1000;

/** Table rows without calls. */
const rows = (names: readonly Service[]): ServiceEntry[] =>
  names.map((name) => ({
    name,
    main: '',
    calls: [],
    defaults: () => ({}),
    schema: () => Promise.reject(new Error('not needed')),
  }));
const prepare = (at: Home, names: readonly Service[]): Promise<void> =>
  prepareKeys(at, rows(names), rows(names), signal);

async function home(t: TestContext): Promise<Home> {
  const dir = tempDirFor(t);
  return homeAt(dir);
}

const tokens = async (at: Home): Promise<Record<string, string>> =>
  JSON.parse(await readFile(at.capability, 'utf8')) as Record<string, string>;

async function isAccepted(at: Home, audience: Service, token: string): Promise<boolean> {
  await using keys = await FileKeySource.open({ path: at.of(audience).keys, create: false }, signal);
  const checker = new Checker({ audience, keys });
  const request = {
    authorization: `Bearer ${token}`,
    scope: `${audience}:admin`,
    source_ip: '127.0.0.1',
    body_bytes: 0,
  };
  return (await checker.checkHeaders(request, signal)).ok;
}

test('each service accepts its own token, with its own keys, and no other token', async (t) => {
  const at = await home(t);
  await prepare(at, ['storage', 'index']);
  const { storage, index } = await tokens(at);
  assert.equal((await stat(at.capability)).mode & 0o777, 0o600);
  assert.equal(await isAccepted(at, 'storage', storage!), true);
  assert.equal(await isAccepted(at, 'index', index!), true);
  assert.equal(await isAccepted(at, 'storage', index!), false);
  assert.equal(inspectToken(storage!).subject, 'root');
});

test('valid tokens are kept, and a token for a new service is added', async (t) => {
  const at = await home(t);
  await prepare(at, ['storage']);
  const before = await tokens(at);
  await prepare(at, ['storage']);
  assert.deepEqual(await tokens(at), before);
  await prepare(at, ['storage', 'kms']);
  const after = await tokens(at);
  assert.equal(after['storage'], before['storage']);
  assert.ok(after['kms'] !== undefined);
});

test('a token is replaced if it expires soon, lacks scopes, has another key or cannot be parsed', async (t) => {
  const at = await home(t);
  await prepare(at, ['storage']);
  const first = (await tokens(at))['storage']!;
  const replaced = async (): Promise<string> => {
    await renewByKeyFile(at, rows(['storage']), signal);
    return (await tokens(at))['storage']!;
  };
  for (const bad of [attenuate(first, ['scopes in storage:get']), 'AAAA']) {
    await writeFile(at.capability, JSON.stringify({ storage: bad }), { mode: 0o600 });
    assert.notEqual(await replaced(), bad);
  }
  const second = await replaced();
  const later = (ms: number): (() => void) => {
    const before = installSched({ ...realSched, wall_ms: () => realSched.wall_ms() + ms });
    return () => void installSched(before);
  };
  let restore = later(ROOT_TTL_MS - 31 * DAY_MS);
  assert.equal(await replaced(), second, '31 days are left');
  restore();
  restore = later(ROOT_TTL_MS - 29 * DAY_MS);
  assert.notEqual(await replaced(), second);
  restore();

  const third = await replaced();
  await rm(at.keys);
  await prepare(at, ['storage']);
  assert.notEqual((await tokens(at))['storage'], third, 'the root key was replaced');
});
