import assert from 'node:assert/strict';
import { chmod, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { hkdfSync } from 'node:crypto';
import { Metrics } from '@ron/telemetry';
import { RonError } from '@ron/kernel';
import { tempDirFor } from '@ron/testkit';
import { signal } from '../../test/support.ts';
import { mint } from '../capability/capability.ts';
import { Checker } from '../checker/checker.ts';
import type { DerivedKeySource, KeyDeriver } from '../keys/derived-keys.ts';
import { subjectTag } from '../revocations/revocations.ts';
import { SealedCache } from './sealed-cache.ts';
import { openServiceAuth, type ServiceAuth, type ServiceAuthInit } from './service-auth.ts';

const KEK = Buffer.alloc(32, 9);
const CLAIM = { audience: 'storage', scopes: ['storage:get'], ttl_ms: 60_000, subject: 'alice' } as const;

class Root implements KeyDeriver {
  away = false;
  state(): ReturnType<KeyDeriver['state']> {
    return Promise.resolve({ version: 1, version_min: 1, root_id: 'r' });
  }
  async derive(label: string): ReturnType<KeyDeriver['derive']> {
    if (this.away) throw new RonError('unreachable', 'kms is down');
    return { version: 1, version_min: 1, secret: new Uint8Array(hkdfSync('sha256', 'root', '', label, 32)) };
  }
}

class Log {
  readonly lines: string[] = [];
  readonly warn = (...args: unknown[]): void => void this.lines.push(String(args.at(-1)));
  readonly info = this.warn;
}

async function place(t: TestContext): Promise<string> {
  const dir = tempDirFor(t);
  return dir;
}

interface Opened {
  readonly auth: ServiceAuth;
  readonly log: Log;
}

async function opened(dir: string | undefined, more: Partial<ServiceAuthInit> = {}): Promise<Opened> {
  const log = new Log();
  const config = { auth: {}, amnesia: { enabled: dir === undefined } };
  const init = {
    audience: 'storage',
    config,
    dir,
    env: {},
    log: log as unknown as ServiceAuthInit['log'],
    signal,
  } as const;
  return { auth: await openServiceAuth({ ...init, ...more }), log };
}

async function accepts({ auth }: Opened, token: string): Promise<boolean> {
  const checker = new Checker({ audience: 'storage', keys: auth.keys, epochs: auth.epochs });
  const request = { authorization: `Bearer ${token}`, scope: 'storage:get', source_ip: '::1' } as const;
  return (await checker.checkHeaders(request, signal)).ok;
}

test('keys are stored sealed and for their owner only, so a start without kms works', async (t) => {
  const dir = await place(t);
  const deriver = new Root();
  const first = await opened(dir, { deriver });
  assert.equal(first.auth.origin, 'kms');
  const { token } = await mint(first.auth.keys, CLAIM, signal);
  const key = Buffer.from((await first.auth.keys.current('storage', signal)).key);
  await first.auth.close();
  const path = join(dir, 'auth/cache');
  assert.equal((await stat(path)).mode & 0o777, 0o600);
  for (const name of await readdir(join(dir, 'auth'))) {
    const bytes = await readFile(join(dir, 'auth', name));
    for (const spelled of [key, key.toString('hex'), key.toString('base64')]) assert.ok(!bytes.includes(spelled), name);
  }
  deriver.away = true;
  const metrics = new Metrics('storage');
  const second = await opened(dir, { deriver, metrics });
  assert.equal(await accepts(second, token), true);
  assert.match(await metrics.text(), /^capability_keys_asked_total\{result="failed"\} 1$/m);
  deriver.away = false;
  await (second.auth.keys as DerivedKeySource).refresh('storage', signal);
  assert.match(await metrics.text(), /^capability_keys_asked_total\{result="answered"\} 1$/m);
  assert.match(await metrics.text(), /^capability_keys_age_seconds [0-9.e-]+$/m);
  await second.auth.close();
});

test('without a cache and without kms it starts, reports that it has no keys, and stores nothing in amnesia', async (t) => {
  const deriver = Object.assign(new Root(), { away: true });
  const service = await opened(undefined, { deriver });
  const gates = new Map<string, () => string | undefined>();
  service.auth.report({ gate: (name, { sample }) => gates.set(name, sample), tell: () => undefined });
  assert.match(gates.get('capability_keys')!()!, /no keys from kms yet: kms is down/);
  await assert.rejects(service.auth.keys.current('storage', signal), { code: 'not_ready' });
  assert.ok(service.log.lines.includes('no capability keys from kms yet'));
  deriver.away = false;
  await service.auth.close();
  const dir = await place(t);
  const config = { auth: {}, amnesia: { enabled: true } };
  const amnesia = await opened(dir, { deriver, config });
  await amnesia.auth.keys.current('storage', signal);
  await amnesia.auth.close();
  assert.deepEqual(await readdir(dir), []);
});

test('without kms keys come from a file, which is reported', async (t) => {
  const dir = await place(t);
  const service = await opened(dir);
  const facts = new Map<string, () => string>();
  service.auth.report({ gate: () => undefined, tell: (name, sample) => facts.set(name, sample) });
  assert.equal(facts.get('capability_keys')!(), 'file');
  assert.match(service.log.lines.join(), /keys from a file: there is no kms/);
  assert.deepEqual(await readdir(dir), ['keys']);
  await service.auth.close();
  const memory = await opened(undefined);
  assert.equal(memory.auth.origin, 'memory');
  await memory.auth.close();
});

test('stored revocations are in force from the start, before passport answers', async (t) => {
  const dir = await place(t);
  const path = join(dir, 'auth/cache');
  const cache = await SealedCache.open({ path, unlock: { kek: KEK }, signal });
  await cache.saveRevocations({ version: 3, all: 0, subjects: { [subjectTag('root')]: 500 }, ids: {} }, signal);
  await cache.close();
  const config = { auth: { passport_url: 'unix:/nonexistent/passport.sock' }, amnesia: { enabled: false } };
  const service = await opened(dir, { deriver: new Root(), config, unlock: { kek: KEK } });
  const token = async (epoch: number): Promise<string> =>
    (await mint(service.auth.keys, { ...CLAIM, subject: 'root', epoch }, signal)).token;
  assert.equal(await accepts(service, await token(499)), false);
  assert.equal(await accepts(service, await token(500)), true);
  const alice = (await mint(service.auth.keys, CLAIM, signal)).token;
  await assert.rejects(accepts(service, alice), { code: 'not_ready' }, 'capabilities of passport wait for its answer');
  await service.auth.close();
});

test('a damaged cache, or one sealed with another key, is refused with the reason; a capability file that other users can read is not used', async (t) => {
  const dir = await place(t);
  const path = join(dir, 'cache');
  await (await SealedCache.open({ path, unlock: { kek: KEK }, signal })).close();
  await assert.rejects(SealedCache.open({ path, unlock: { kek: Buffer.alloc(32, 1) }, signal }), { code: 'not_ready' });
  const bytes = await readFile(path);
  bytes[bytes.length - 1]! ^= 1;
  await writeFile(path, bytes);
  await assert.rejects(SealedCache.open({ path, unlock: { kek: KEK }, signal }), {
    code: 'not_ready',
    message: /damaged/,
  });
  const capability_file = join(dir, 'kms.cap');
  await writeFile(capability_file, 'x');
  await chmod(capability_file, 0o644);
  const config = { auth: { kms_url: 'unix:/nonexistent/passport.sock', capability_file }, amnesia: { enabled: true } };
  const service = await opened(undefined, { config, start_ms: 0 });
  const gates = new Map<string, () => string | undefined>();
  service.auth.report({ gate: (name, { sample }) => gates.set(name, sample), tell: () => undefined });
  assert.match(gates.get('kms')!()!, /is open to other users .*run chmod 600/);
  await service.auth.close();
});
