/** Providers are added, replaced, rotated and removed; at most two secrets are accepted, each until its end. */
import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { inNetworks } from '@ron/auth';
import { NEVER, RonError } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { FaultyDisk } from '@ron/log/testing';
import { INTEROP_LIMITS } from '@ron/proto';
import { tempDirFor } from '@ron/testkit';
import { requireDescriptor } from './descriptor.ts';
import { networksOf } from './networks.ts';
import { FakeKms, accepts, openTest, SECOND, SECRET, THIRD, verifyGithub } from './testing/support.ts';

const GITHUB = { scheme: 'github', secret: SECRET } as const;
const HOUR_MS = 3_600_000;

test('a provider is added once, and replaced afterwards; without a secret it keeps its own', async (t) => {
  await using open = await openTest({ dir: tempDirFor(t), kms: new FakeKms() });
  const { providers, events } = open;
  const added = await providers.put('github', GITHUB, NEVER);
  assert.equal(added.created, true);
  assert.deepEqual(added.provider, providers.describe('github'));
  const replaced = await providers.put('github', { scheme: 'github', topic: 'hooks.code' }, NEVER);
  assert.equal(replaced.created, false);
  assert.equal(replaced.provider.topic, 'hooks.code');
  assert.deepEqual(replaced.provider.secrets, added.provider.secrets);
  assert.equal(await accepts(providers.get('github'), SECRET), true);
  assert.deepEqual(
    events.map((event) => event.kind === 'provider changed' && event.change),
    ['added', 'replaced'],
  );
});

test('a new secret in a replacement ends the old ones at once; the same secret stays the same version', async (t) => {
  await using open = await openTest({ dir: tempDirFor(t) });
  const { providers } = open;
  await providers.put('github', GITHUB, NEVER);
  const same = await providers.put('github', GITHUB, NEVER);
  assert.deepEqual(
    same.provider.secrets.map(({ version }) => version),
    [1],
  );
  const next = await providers.put('github', { ...GITHUB, secret: SECOND }, NEVER);
  assert.deepEqual(
    next.provider.secrets.map(({ version }) => version),
    [2],
  );
  assert.equal(await accepts(providers.get('github'), SECRET), false);
  assert.equal(await accepts(providers.get('github'), SECOND), true);
});

test('the incarnation is kept by changes and restarts; a provider that is added again has a higher one', async (t) => {
  const dir = tempDirFor(t);
  const seen: number[] = [];
  {
    await using open = await openTest({ dir });
    const { providers } = open;
    const note = (): void => void seen.push(providers.get('github')!.incarnation);
    await providers.put('github', GITHUB, NEVER);
    note();
    await providers.put('github', { scheme: 'github', topic: 'hooks.code' }, NEVER);
    note();
    await providers.rotate('github', { secret: SECOND }, NEVER);
    note();
    await providers.put('github', { scheme: 'slack', secret: THIRD }, NEVER);
    note();
  }
  await using open = await openTest({ dir });
  const { providers } = open;
  seen.push(providers.get('github')!.incarnation);
  assert.equal(new Set(seen).size, 1, String(seen));
  await providers.remove('github', NEVER);
  await providers.put('github', GITHUB, NEVER);
  assert.ok(providers.get('github')!.incarnation > seen[0]!);
});

test('no incarnation is given out twice, even if the clock is set back', async (t) => {
  const dir = tempDirFor(t);
  const seen: number[] = [];
  for (const now_ms of [2 * HOUR_MS, HOUR_MS, 0]) {
    await new VirtualSched(now_ms).during(async () => {
      await using open = await openTest({ dir });
      for (const name of ['a', 'b']) {
        await open.providers.put(name, GITHUB, NEVER);
        seen.push(open.providers.get(name)!.incarnation);
        await open.providers.remove(name, NEVER);
      }
    });
  }
  assert.deepEqual(
    seen,
    seen.toSorted((a, b) => a - b),
  );
  assert.equal(new Set(seen).size, 6);
});

test('a new provider, and one with another scheme, need a secret', async (t) => {
  await using open = await openTest({ dir: tempDirFor(t) });
  const { providers } = open;
  await assert.rejects(providers.put('github', { scheme: 'github' }, NEVER), { code: 'validation' });
  assert.equal(providers.get('github'), undefined);
  await providers.put('github', GITHUB, NEVER);
  await assert.rejects(providers.put('github', { scheme: 'slack' }, NEVER), { code: 'validation', message: /scheme/ });
  assert.equal(providers.describe('github').scheme, 'github');
});

test('a rotation accepts both secrets until the overlap ends, then only the new one', async (t) => {
  const clock = new VirtualSched();
  const dir = tempDirFor(t);
  await clock.during(async () => {
    await using open = await openTest({ dir, kms: new FakeKms() });
    const { providers } = open;
    await providers.put('github', GITHUB, NEVER);
    const { secrets } = await providers.rotate('github', { secret: SECOND, overlap_ms: HOUR_MS }, NEVER);
    assert.deepEqual(
      secrets.map(({ version, ends_ms }) => ({ version, ends_ms })),
      [
        { version: 2, ends_ms: undefined },
        { version: 1, ends_ms: clock.wall_ms() + HOUR_MS },
      ],
    );
    const old = await verifyGithub(providers.get('github'), SECRET);
    assert.equal(old.ok && old.secret_version, 1);
    const young = await verifyGithub(providers.get('github'), SECOND);
    assert.equal(young.ok && young.secret_version, 2);
    const provider = providers.get('github');
    clock.advanceSync(HOUR_MS - 1);
    assert.equal(await accepts(provider, SECRET), true);
    clock.advanceSync(1);
    assert.equal(await accepts(provider, SECRET), false, 'even for a request that loaded the provider before');
    assert.equal(await accepts(provider, SECOND), true);
    assert.deepEqual(
      providers.describe('github').secrets.map(({ version }) => version),
      [2],
    );
  });
});

test('the default overlap is 24 h; an overlap of 0 ends every older secret at once', async (t) => {
  await using open = await openTest({ dir: tempDirFor(t) });
  const { providers } = open;
  await providers.put('github', GITHUB, NEVER);
  const before_ms = Date.now();
  const [, old] = (await providers.rotate('github', { secret: SECOND }, NEVER)).secrets;
  assert.ok(old!.ends_ms! - before_ms >= 24 * HOUR_MS && old!.ends_ms! - before_ms < 25 * HOUR_MS);
  const { secrets } = await providers.rotate('github', { secret: THIRD, overlap_ms: 0 }, NEVER);
  assert.deepEqual(
    secrets.map(({ version }) => version),
    [3],
  );
  for (const secret of [SECRET, SECOND]) assert.equal(await accepts(providers.get('github'), secret), false);
  assert.equal(await accepts(providers.get('github'), THIRD), true);
});

test('a third live secret is refused, and so is one that is live already', async (t) => {
  await using open = await openTest({ dir: tempDirFor(t) });
  const { providers } = open;
  await providers.put('github', GITHUB, NEVER);
  await assert.rejects(providers.rotate('github', { secret: SECRET }, NEVER), {
    code: 'conflict',
    message: /live already/,
  });
  await providers.rotate('github', { secret: SECOND }, NEVER);
  await assert.rejects(providers.rotate('github', { secret: THIRD }, NEVER), {
    code: 'conflict',
    message: /two secrets are live/,
  });
  assert.equal(await accepts(providers.get('github'), SECRET), true);
  await assert.rejects(providers.rotate('none', { secret: SECRET }, NEVER), { code: 'not_found' });
});

test('the uses of each secret are counted and survive a change of the descriptor', async (t) => {
  await using open = await openTest({ dir: tempDirFor(t) });
  const { providers } = open;
  await providers.put('github', GITHUB, NEVER);
  const { countUse } = providers.get('github')!;
  countUse(1);
  countUse(1);
  await providers.put('github', { scheme: 'github', limits: { rps: 3 } }, NEVER);
  const { secrets } = await providers.rotate('github', { secret: SECOND }, NEVER);
  assert.deepEqual(
    secrets.map(({ version, uses }) => [version, uses]),
    [
      [2, 0],
      [1, 2],
    ],
  );
  assert.ok(secrets[1]!.last_used_ms! > 0);
});

test('a removed provider is gone with its file; its versions are not used again', async (t) => {
  const dir = tempDirFor(t);
  {
    await using open = await openTest({ dir });
    const { providers, removed } = open;
    await providers.put('github', GITHUB, NEVER);
    await providers.remove('github', NEVER);
    assert.equal(providers.get('github'), undefined);
    assert.deepEqual(removed, ['github']);
    assert.equal((await readdir(join(dir, 'providers'))).includes('github.sealed'), false);
    await assert.rejects(providers.remove('github', NEVER), { code: 'not_found' });
  }
  await using open = await openTest({ dir });
  const { provider } = await open.providers.put('github', GITHUB, NEVER);
  assert.deepEqual(
    provider.secrets.map(({ version }) => version),
    [2],
  );
});

test('[interop I-2] concurrent changes run one at a time, and none is lost', async (t) => {
  await using open = await openTest({ dir: tempDirFor(t), kms: new FakeKms() });
  const { providers } = open;
  const names = Array.from({ length: 12 }, (_, at) => `p${at}`);
  await Promise.all(names.map((name) => providers.put(name, GITHUB, NEVER)));
  const rotations = await Promise.allSettled(
    [SECOND, THIRD].map((secret) => providers.rotate('p0', { secret }, NEVER)),
  );
  assert.deepEqual(
    rotations.map(({ status }) => status),
    ['fulfilled', 'rejected'],
  );
  assert.deepEqual(
    providers.list().map(({ name }) => name),
    names.toSorted(),
  );
});

test('there are as many providers as the limit allows; a known one can still be replaced', async () => {
  await using open = await openTest({ dir: undefined });
  const { providers } = open;
  for (let at = 0; at < INTEROP_LIMITS.providers; at++) await providers.put(`p${at}`, GITHUB, NEVER);
  await assert.rejects(providers.put('more', GITHUB, NEVER), { code: 'storage_full' });
  await providers.put('p0', { ...GITHUB, secret: SECOND }, NEVER);
  await providers.remove('p1', NEVER);
  await providers.put('more', GITHUB, NEVER);
});

test('a change takes effect only once it is durable; a failed one changes nothing', async (t) => {
  const disk = new FaultyDisk();
  const dir = tempDirFor(t);
  await using open = await openTest({ dir, fs: disk });
  const { providers } = open;
  await providers.put('github', GITHUB, NEVER);
  disk.hold('github.sealed', 'sync');
  const rotating = providers.rotate('github', { secret: SECOND, overlap_ms: 0 }, NEVER);
  rotating.catch(() => undefined);
  while (disk.waiting === 0) await new Promise((resolve) => setImmediate(resolve));
  assert.equal(await accepts(providers.get('github'), SECOND), false, 'it is not synced yet');
  assert.equal(await accepts(providers.get('github'), SECRET), true);
  disk.mend();
  await rotating;
  assert.equal(await accepts(providers.get('github'), SECOND), true);
  disk.fail('.sealed', 'ENOSPC');
  await assert.rejects(providers.rotate('github', { secret: THIRD, overlap_ms: 0 }, NEVER), { code: 'storage_full' });
  await assert.rejects(providers.put('slack', { scheme: 'slack', secret: SECRET }, NEVER), { code: 'storage_full' });
  disk.mend();
  assert.equal(await accepts(providers.get('github'), SECOND), true);
  assert.equal(providers.get('slack'), undefined);
  const names = await readdir(join(dir, 'providers'));
  assert.deepEqual(
    names.filter((name) => name.includes('.sealed')),
    ['github.sealed'],
    'nothing is left of the failed one',
  );
  await providers.rotate('github', { secret: THIRD, overlap_ms: 0 }, NEVER);
});

test('[interop I-5] a change whose caller left before its turn is not applied', async (t) => {
  const disk = new FaultyDisk();
  await using open = await openTest({ dir: tempDirFor(t), fs: disk });
  const { providers } = open;
  disk.hold('a.sealed', 'sync');
  const first = providers.put('a', GITHUB, NEVER);
  while (disk.waiting === 0) await new Promise((resolve) => setImmediate(resolve));
  const leaving = new AbortController();
  const second = providers.put('b', GITHUB, leaving.signal);
  leaving.abort(new RonError('canceled', 'the client left'));
  await assert.rejects(second, { code: 'canceled' });
  disk.mend();
  await first;
  assert.deepEqual(
    providers.list().map(({ name }) => name),
    ['a'],
  );
});

test('[interop I-1] a lookup allocates no list and returns the same provider until it changes', async (t) => {
  await using open = await openTest({ dir: tempDirFor(t) });
  const { providers } = open;
  await providers.put('github', GITHUB, NEVER);
  const provider = providers.get('github')!;
  assert.equal(providers.get('github'), provider);
  assert.equal(provider.secrets, provider.secrets);
  await providers.put('other', GITHUB, NEVER);
  assert.equal(providers.get('github'), provider, 'another provider changed');
});

test('a replacement with the newest secret ends the older one', async (t) => {
  await using open = await openTest({ dir: tempDirFor(t) });
  const { providers } = open;
  await providers.put('github', GITHUB, NEVER);
  await providers.rotate('github', { secret: SECOND }, NEVER);
  const { provider } = await providers.put('github', { ...GITHUB, secret: SECOND }, NEVER);
  assert.equal(provider.secrets.length, 1);
  assert.equal(await accepts(providers.get('github'), SECRET), false);
  assert.equal(await accepts(providers.get('github'), SECOND), true);
});

test('a removal that failed does not happen later', async (t) => {
  const disk = new FaultyDisk();
  const dir = tempDirFor(t);
  {
    await using open = await openTest({ dir, fs: disk });
    await open.providers.put('github', GITHUB, NEVER);
    disk.fail('catalog', 'EIO');
    await assert.rejects(open.providers.remove('github', NEVER));
    disk.mend();
    await open.providers.put('other', GITHUB, NEVER);
    assert.equal(await accepts(open.providers.get('github'), SECRET), true);
  }
  await using open = await openTest({ dir });
  assert.equal(await accepts(open.providers.get('github'), SECRET), true);
});

test('the networks of a descriptor are compiled once', () => {
  const descriptor = requireDescriptor('github', { scheme: 'github', networks: ['192.0.2.0/24', '2001:db8::/32'] });
  assert.equal(networksOf(descriptor), networksOf(descriptor));
  assert.equal(inNetworks('::ffff:192.0.2.7', networksOf(descriptor)), true);
  assert.equal(inNetworks('198.51.100.1', networksOf(descriptor)), false);
});

test('a creation that fails leaves no file', async (t) => {
  const disk = new FaultyDisk();
  const dir = tempDirFor(t);
  await using open = await openTest({ dir, fs: disk });
  for (const step of ['create', 'write', 'sync'] as const) {
    disk.fail('github.sealed', 'ENOSPC', step);
    await assert.rejects(open.providers.put('github', GITHUB, NEVER), { code: 'storage_full' });
    disk.mend();
    assert.deepEqual((await readdir(join(dir, 'providers'))).toSorted(), ['catalog'], step);
  }
  await open.providers.put('github', GITHUB, NEVER);
});

test('a removal whose file cannot be deleted takes effect; the next start deletes the file', async (t) => {
  const disk = new FaultyDisk();
  const dir = tempDirFor(t);
  {
    await using open = await openTest({ dir, fs: disk });
    await open.providers.put('github', GITHUB, NEVER);
    disk.fail('github.sealed', 'EIO', 'remove');
    await open.providers.remove('github', NEVER);
    assert.equal(open.providers.get('github'), undefined);
    assert.match(open.warnings.join(), /failed to remove/);
  }
  await using open = await openTest({ dir });
  assert.deepEqual(open.providers.list(), []);
  assert.equal((await readdir(join(dir, 'providers'))).includes('github.sealed'), false);
});
