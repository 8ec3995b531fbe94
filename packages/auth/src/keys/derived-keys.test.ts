import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { inspect } from 'node:util';
import { test } from 'node:test';
import { RonError } from '@ron/kernel';
import { signal, TestClock } from '../../test/support.ts';
import { mint } from '../capability/capability.ts';
import { Checker } from '../checker/checker.ts';
import {
  DerivedKeySource,
  keyIdOf,
  type Derived,
  type KeyCache,
  type KeyDeriver,
  type RootState,
} from './derived-keys.ts';
import type { Service } from '@ron/proto';
import type { KeySet } from './key-ring.ts';

/** A minimal key service: a secret for each version, and a switch for an outage. */
class Root implements KeyDeriver {
  readonly secrets = ['root 1'];
  version_min = 1;
  deleted = new Set<number>();
  away = false;
  readonly asked: string[] = [];

  polls = 0;

  async state(): Promise<RootState> {
    this.polls += 1;
    if (this.away) throw new RonError('unreachable', 'kms is down');
    return { version: this.secrets.length, version_min: this.version_min, root_id: this.secrets[0]! };
  }

  async derive(audience: Service, version = this.secrets.length): Promise<Derived> {
    this.asked.push(`${audience} of ${version}`);
    if (this.away) throw new RonError('unreachable', 'kms is down');
    if (version < this.version_min || this.deleted.has(version)) throw new RonError('conflict', 'retired');
    return { version, version_min: this.version_min, secret: this.secretOf(version, audience) };
  }

  keyId(version: number): string {
    return keyIdOf(version, this.secretOf(version));
  }

  secretOf(version: number, audience: Service = 'storage'): Uint8Array {
    const hmac = createHmac('sha256', this.secrets[version - 1]!);
    return new Uint8Array(hmac.update(audience).digest());
  }

  rotate(): void {
    this.secrets.push(`root ${this.secrets.length + 1}`);
  }
}

class Kept implements KeyCache {
  readonly sets = new Map<string, KeySet>();
  saves = 0;
  load(audience: string): KeySet | undefined {
    const set = this.sets.get(audience);
    return set && { ...set, keys: set.keys.map(({ key_id, secret }) => ({ key_id, secret: Uint8Array.from(secret) })) };
  }
  async save(set: KeySet): Promise<void> {
    this.saves += 1;
    this.sets.set(set.audience, {
      ...set,
      keys: set.keys.map((key) => ({ ...key, secret: Uint8Array.from(key.secret) })),
    });
  }
}

const CLAIM = { audience: 'storage', scopes: ['storage:get'], ttl_ms: 60_000 } as const;

async function verdict(checker: Checker, token: string): Promise<string> {
  const request = { authorization: `Bearer ${token}`, scope: 'storage:get', source_ip: '::1' } as const;
  try {
    const said = await checker.checkHeaders(request, signal);
    return said.ok ? 'ok' : said.code;
  } catch (error) {
    return (error as RonError).code;
  }
}

test('keys follow from the root, the audience and the version; one source mints and another checks', async () => {
  const root = new Root();
  await using issuer = new DerivedKeySource({ deriver: root });
  await using service = new DerivedKeySource({ deriver: root });
  const { token } = await mint(issuer, CLAIM, signal);
  assert.equal(await verdict(new Checker({ audience: 'storage', keys: service }), token), 'ok');
  assert.deepEqual(root.asked, ['storage of 1', 'storage of 1']);
  const storage = (await issuer.current('storage', signal)).key;
  const kms = (await issuer.current('kms', signal)).key;
  assert.notDeepEqual(storage, kms);
});

test('a new version is fetched on first use; older ones are valid until they are retired', async () => {
  using clock = new TestClock();
  const root = new Root();
  await using service = new DerivedKeySource({ deriver: root });
  const checker = new Checker({ audience: 'storage', keys: service });
  await using before = new DerivedKeySource({ deriver: root });
  const old = (await mint(before, CLAIM, signal)).token;
  assert.equal(await verdict(checker, old), 'ok');
  root.rotate();
  await using after = new DerivedKeySource({ deriver: root });
  const fresh = (await mint(after, CLAIM, signal)).token;
  assert.equal(await verdict(checker, fresh), 'unauthorized', 'unknown key ids must not trigger a query each');
  clock.now_ms += 1000;
  assert.equal(await verdict(checker, fresh), 'ok');
  assert.equal(await verdict(checker, old), 'ok');
  const { generation } = service;
  root.version_min = 2;
  await service.refresh('storage', signal);
  assert.notEqual(service.generation, generation);
  assert.equal(await verdict(checker, old), 'unauthorized', 'the cache outlived the key');
  assert.equal(await verdict(checker, fresh), 'ok');
});

test('a single deleted version is skipped', async () => {
  const root = new Root();
  root.rotate();
  root.rotate();
  root.deleted.add(2);
  await using keys = new DerivedKeySource({ deriver: root });
  await keys.refresh('storage', signal);
  assert.ok(await keys.key('storage', root.keyId(1), signal));
  assert.equal(await keys.key('storage', root.keyId(2), signal), undefined);
  assert.equal((await keys.current('storage', signal)).key_id, root.keyId(3));
});

test('only the newest eight versions count', async () => {
  const root = new Root();
  for (let count = 1; count < 12; count++) root.rotate();
  await using keys = new DerivedKeySource({ deriver: root });
  await keys.refresh('storage', signal);
  assert.ok(await keys.key('storage', root.keyId(5), signal));
  assert.equal(await keys.key('storage', root.keyId(4), signal), undefined);
});

test('while kms is down known keys stay valid, others are "not ready", and a source with a cache starts', async () => {
  using clock = new TestClock();
  const root = new Root();
  const cache = new Kept();
  let token: string;
  {
    await using first = new DerivedKeySource({ deriver: root, cache });
    token = (await mint(first, CLAIM, signal)).token;
  }
  root.away = true;
  await using keys = new DerivedKeySource({ deriver: root, cache });
  const checker = new Checker({ audience: 'storage', keys });
  assert.equal(await verdict(checker, token), 'ok');
  assert.equal(root.asked.length, 1, 'known keys are not queried');
  root.rotate();
  await using other = new DerivedKeySource({ deriver: Object.assign(new Root(), { secrets: root.secrets }) });
  const unknown = (await mint(other, CLAIM, signal)).token;
  assert.equal(await verdict(checker, unknown), 'not_ready');
  const asked = root.asked.length;
  assert.equal(await verdict(checker, unknown), 'not_ready', 'at once, without another query');
  assert.equal(root.asked.length, asked);
  assert.match(keys.problem('storage')!, /kms is down/);
  root.away = false;
  clock.now_ms += 1000;
  assert.equal(await verdict(checker, unknown), 'ok');
  assert.equal(keys.problem('storage'), undefined);
  await using without = new DerivedKeySource({ deriver: Object.assign(new Root(), { away: true }) });
  await assert.rejects(without.current('storage', signal), { code: 'not_ready', retry_after_ms: 1000 });
});

test('a lost root is detected at the first capability under the new one, and the old keys become invalid', async () => {
  using clock = new TestClock();
  const root = new Root();
  root.rotate();
  await using keys = new DerivedKeySource({ deriver: root });
  const checker = new Checker({ audience: 'storage', keys });
  const token = (await mint(keys, CLAIM, signal)).token;
  const older = root.keyId(1);
  assert.equal(await verdict(checker, token), 'ok');
  assert.ok(await keys.key('storage', older, signal));
  root.secrets.splice(0, 2, 'new 1', 'new 2');
  await using issuer = new DerivedKeySource({ deriver: root });
  const fresh = (await mint(issuer, CLAIM, signal)).token;
  clock.now_ms += 1000;
  assert.equal(await verdict(checker, fresh), 'ok');
  assert.equal(await verdict(checker, token), 'unauthorized');
  assert.equal(await keys.key('storage', older, signal), undefined, 'the older version too');
  root.secrets.splice(0, 2, 'newest 1');
  await keys.refresh('storage', signal);
  assert.equal((await keys.current('storage', signal)).key_id, root.keyId(1));
});

test('key ids that kms never issues are unknown without a query', async () => {
  const root = new Root();
  await using keys = new DerivedKeySource({ deriver: root });
  for (const key_id of ['0', 'v0', 'v1', 'v1x', 'v1x0123456', 'v0x01234567', 'abc', 'v12345678'])
    assert.equal(await keys.key('storage', key_id, signal), undefined);
  assert.deepEqual(root.asked, []);
});

test('concurrent callers share one query, and each ends by its own signal', async () => {
  let answer: ((derived: Derived) => void) | undefined;
  let asked = 0;
  const deriver: KeyDeriver = {
    state: () => Promise.reject(new Error('not polled')),
    derive: () => {
      asked += 1;
      return new Promise((resolve) => (answer = resolve));
    },
  };
  await using keys = new DerivedKeySource({ deriver });
  const leaves = new AbortController();
  const [left, stays] = [keys.current('storage', leaves.signal), keys.current('storage', signal)];
  leaves.abort(new Error('gone'));
  await assert.rejects(left, /gone/);
  answer!({ version: 1, version_min: 1, secret: new Uint8Array(32).fill(7) });
  assert.match((await stays).key_id, /^v1x/);
  assert.equal(asked, 1);
});

test('a query without an answer ends at its deadline', async () => {
  const never = (): Promise<never> => new Promise(() => undefined);
  const deriver = { state: never, derive: never };
  await using keys = new DerivedKeySource({ deriver, deadline_ms: 20 });
  await assert.rejects(keys.current('storage', signal), { code: 'not_ready' });
});

test('closing zeroes the keys, even those of a pending query, and nothing prints them', async () => {
  const root = new Root();
  const keys = new DerivedKeySource({ deriver: root });
  const { key } = await keys.current('storage', signal);
  const hex = Buffer.from(key).toString('hex');
  assert.ok(!inspect(keys).includes(hex) && !JSON.stringify(keys).includes(hex));
  assert.match(inspect(keys), /storage: v1x/);
  let late: Uint8Array | undefined;
  const slow = new DerivedKeySource({
    deriver: {
      state: () => root.state(),
      derive: async (audience, version) => {
        await slow.close();
        const derived = await root.derive(audience, version);
        late = derived.secret;
        return derived;
      },
    },
  });
  await assert.rejects(slow.current('storage', signal), { code: 'closed' });
  assert.ok(late!.every((byte) => byte === 0));
  await keys.close();
  assert.ok(key.every((byte) => byte === 0));
  await assert.rejects(keys.current('storage', signal), { code: 'closed' });
  assert.equal(await keys.key('storage', root.keyId(1), signal), undefined);
});

test('a cache that cannot be written does not affect the keys', async () => {
  const problems: unknown[] = [];
  const cache = { load: () => undefined, save: () => Promise.reject(new Error('full')) };
  await using keys = new DerivedKeySource({
    deriver: new Root(),
    cache,
    onCacheProblem: (error) => problems.push(error),
  });
  assert.match((await keys.current('storage', signal)).key_id, /^v1x/);
  assert.match(String(problems[0]), /full/);
});

test('a poll derives only when the root changed: rotated, retired or replaced; audiences in use are derived again', async (t) => {
  const root = new Root();
  await using keys = new DerivedKeySource({ deriver: root });
  await keys.current('kms', signal);
  const stop = new AbortController();
  let refreshed = 0;
  const onRefreshed = (): Promise<void> => Promise.resolve(void (refreshed += 1));
  const running = keys.run('storage', () => 1, stop.signal, { onRefreshed }).catch(() => undefined);
  t.after(async () => {
    stop.abort();
    await running;
  });
  const polled = async (): Promise<void> => {
    const { polls } = root;
    while (root.polls < polls + 3) await new Promise((resolve) => setTimeout(resolve, 1));
  };
  await polled();
  const asked = root.asked.length;
  await polled();
  assert.equal(root.asked.length, asked, 'an unchanged root is not derived from');
  assert.equal(refreshed, 1);
  root.rotate();
  await polled();
  assert.equal((await keys.current('storage', signal)).key_id, root.keyId(2));
  assert.ok(root.asked.includes('kms of 2'));
  assert.equal(refreshed, 2);
  root.version_min = 2;
  await polled();
  assert.equal(await keys.key('storage', root.keyId(1), signal), undefined);
  root.secrets.splice(0, 2, 'new 1', 'new 2');
  await polled();
  assert.equal((await keys.current('storage', signal)).key_id, root.keyId(2), 'another root with the same versions');
  root.away = true;
  await polled();
  assert.match(keys.problem('storage')!, /kms is down/);
  assert.equal((await keys.current('storage', signal)).key_id, root.keyId(2), 'known keys stay valid');
  root.away = false;
  await polled();
  assert.equal(keys.problem('storage'), undefined);
});

test('a retired root is refused even if the capability to derive was retired with it', async (t) => {
  const root = new Root();
  let isRefused = false;
  const deriver: KeyDeriver = {
    state: () => root.state(),
    derive: (audience, version) =>
      isRefused ? Promise.reject(new RonError('unauthorized', 'retired')) : root.derive(audience, version),
  };
  await using keys = new DerivedKeySource({ deriver, requery_ms: 0 });
  const checker = new Checker({ audience: 'storage', keys });
  const token = (await mint(keys, CLAIM, signal)).token;
  assert.equal(await verdict(checker, token), 'ok');
  const stop = new AbortController();
  const running = keys.run('storage', () => 1, stop.signal).catch(() => undefined);
  t.after(async () => {
    stop.abort();
    await running;
  });
  root.rotate();
  root.version_min = 2;
  isRefused = true;
  while ((await verdict(checker, token)) === 'ok') await new Promise((resolve) => setTimeout(resolve, 1));
  assert.equal(await verdict(checker, token), 'unauthorized', 'not "not ready": it will never be valid again');
  await assert.rejects(keys.current('storage', signal), { code: 'not_ready' });
  isRefused = false;
  while (!keys.has('storage')) await new Promise((resolve) => setTimeout(resolve, 1));
  assert.equal((await keys.current('storage', signal)).key_id, root.keyId(2));
});
