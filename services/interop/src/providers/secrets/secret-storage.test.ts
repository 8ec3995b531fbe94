/** Secrets survive restarts, with and without kms and cache, and appear nowhere in the clear. */
import assert from 'node:assert/strict';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { leaks } from '@ron/auth/testing';
import { NEVER, RonError } from '@ron/kernel';
import { eventually, tempDirFor } from '@ron/testkit';
import { FakeKms, accepts, openTest, SECOND, SECRET, THIRD } from '../testing/support.ts';

const GITHUB = { scheme: 'github', secret: SECRET } as const;
/** The bytes of its base64. */
const STANDARD_BYTES = Buffer.from('the decoded bytes of a standard secret');
const WHSEC = `whsec_${STANDARD_BYTES.toString('base64')}`;

for (const secret of [SECRET, SECOND, THIRD, STANDARD_BYTES]) leaks.secret('a webhook secret', secret);

/** Shows every file of the directory to the scan at the end of this test file. */
async function showFiles(dir: string): Promise<number> {
  const entries = await readdir(dir, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  for (const file of files)
    leaks.shown(`the file ${file.slice(dir.length)}`, (await readFile(file)).toString('latin1'));
  return files.length;
}

/** Runs the task until nothing is left to do. */
async function refreshed(open: Awaited<ReturnType<typeof openTest>>): Promise<void> {
  const stopping = new AbortController();
  const task = open.providers.run(stopping.signal);
  await eventually('nothing is due', () => open.providers.due().length === 0);
  stopping.abort(new RonError('draining', 'stop'));
  await task;
}

test('with the cache, a start while kms is away verifies webhooks and makes no call', async (t) => {
  const dir = tempDirFor(t);
  const kms = new FakeKms();
  {
    await using open = await openTest({ dir, kms });
    await open.providers.put('github', GITHUB, NEVER);
    await open.providers.rotate('github', { secret: SECOND }, NEVER);
  }
  assert.equal(kms.wraps, 2);
  kms.isAway = true;
  await using open = await openTest({ dir, kms });
  const { providers } = open;
  assert.equal(providers.problem, undefined);
  for (const secret of [SECRET, SECOND]) assert.equal(await accepts(providers.get('github'), secret), true);
  assert.equal(kms.unwraps, 0);
});

test('without the cache, a start while kms is away closes the provider until the task unwraps', async (t) => {
  const dir = tempDirFor(t);
  const kms = new FakeKms();
  {
    await using open = await openTest({ dir, kms, caches: false });
    await open.providers.put('github', GITHUB, NEVER);
  }
  {
    await using open = await openTest({ dir, kms, caches: false });
    assert.equal(await accepts(open.providers.get('github'), SECRET), true, 'kms answers: the start unwraps');
  }
  kms.isAway = true;
  await using open = await openTest({ dir, kms, caches: false });
  const { providers, events } = open;
  assert.equal(providers.get('github')!.problem, 'its secrets are not unwrapped yet');
  assert.equal(providers.problem, 'the provider github is closed');
  assert.match(providers.describe('github').problem!, /kms cannot unwrap the secret \(unreachable\)/);
  assert.equal(await accepts(providers.get('github'), SECRET), false);
  assert.equal(events.filter(({ kind }) => kind === 'provider closed').length, 1);
  kms.isAway = false;
  await refreshed(open);
  assert.equal(providers.problem, undefined);
  assert.equal(providers.describe('github').problem, undefined);
  assert.equal(await accepts(providers.get('github'), SECRET), true);
  assert.deepEqual(events.at(-1), { kind: 'provider changed', provider: 'github', change: 'opened' });
});

test('a secret that kms cannot unwrap does not close a provider with another one, and is named', async (t) => {
  const dir = tempDirFor(t);
  const kms = new FakeKms();
  {
    await using open = await openTest({ dir, kms, caches: false });
    await open.providers.put('github', GITHUB, NEVER);
  }
  kms.lost.add(1);
  {
    await using open = await openTest({ dir, kms, caches: false });
    const { providers } = open;
    assert.match(providers.describe('github').problem!, /not unwrapped yet/);
    const { problem, secrets } = await providers.rotate('github', { secret: SECOND }, NEVER);
    assert.equal(problem, undefined);
    assert.deepEqual(
      secrets.map(({ version, problem: each }) => [version, each]),
      [
        [2, undefined],
        [
          1,
          'it is not unwrapped yet: kms cannot unwrap the secret (its key is disabled, deleted or below min_version)',
        ],
      ],
    );
    assert.equal(await accepts(providers.get('github'), SECOND), true);
    assert.equal(providers.problem, 'the secret v1 of github is not unwrapped yet');
    assert.deepEqual(open.events.at(-2), { kind: 'provider changed', provider: 'github', change: 'opened' });
  }
  // Whichever of the two it is.
  kms.lost.clear();
  kms.lost.add(2);
  await using open = await openTest({ dir, kms, caches: false });
  const { providers } = open;
  assert.equal(await accepts(providers.get('github'), SECRET), true);
  assert.equal(providers.problem, 'the secret v2 of github is not unwrapped yet');
  const { unwraps } = kms;
  await assert.rejects(providers.reconcile('github', NEVER), { code: 'not_ready' });
  assert.equal(kms.unwraps, unwraps, 'the loaded one is not unwrapped again');
  kms.lost.clear();
  await refreshed(open);
  assert.equal(providers.problem, undefined);
  assert.equal(await accepts(providers.get('github'), SECOND), true);
});

test('adding and rotating while kms is away is refused with 503 and changes nothing', async (t) => {
  const kms = new FakeKms();
  await using open = await openTest({ dir: tempDirFor(t), kms });
  const { providers } = open;
  await providers.put('github', GITHUB, NEVER);
  kms.isAway = true;
  const away = {
    code: 'not_ready',
    status: 503,
    reason: 'DOWNSTREAM_UNAVAILABLE',
    message: /kms cannot wrap the secret/,
  };
  await assert.rejects(providers.put('slack', { scheme: 'slack', secret: SECOND }, NEVER), away);
  await assert.rejects(providers.rotate('github', { secret: SECOND }, NEVER), away);
  assert.deepEqual(
    providers.list().map(({ name, secrets }) => [name, secrets.length]),
    [['github', 1]],
  );
  const { provider } = await providers.put('github', { scheme: 'github', topic: 'hooks.new' }, NEVER);
  assert.equal(provider.topic, 'hooks.new', 'a change without a secret needs no kms');
});

test('a change of secrets.cache or of kms converts the stored secrets', async (t) => {
  const dir = tempDirFor(t);
  const kms = new FakeKms();
  {
    await using open = await openTest({ dir });
    await open.providers.put('github', GITHUB, NEVER);
  }
  {
    await using open = await openTest({ dir, kms, caches: false });
    assert.equal(kms.wraps, 1, 'the sealed secret is wrapped');
    assert.equal(await accepts(open.providers.get('github'), SECRET), true);
  }
  {
    await using open = await openTest({ dir, kms, caches: false });
    assert.equal(kms.unwraps, 1, 'no sealed copy was left');
    assert.equal(await accepts(open.providers.get('github'), SECRET), true);
  }
  {
    await using open = await openTest({ dir, kms });
    assert.equal(kms.unwraps, 2);
    assert.equal(await accepts(open.providers.get('github'), SECRET), true);
  }
  kms.isAway = true;
  {
    await using open = await openTest({ dir, kms });
    assert.equal(await accepts(open.providers.get('github'), SECRET), true, 'it is sealed again');
  }
  kms.isAway = false;
  await (await openTest({ dir, kms, caches: false })).providers.close();
  kms.isAway = true;
  await using open = await openTest({ dir, kms });
  assert.equal(await accepts(open.providers.get('github'), SECRET), false, 'the sealed copy was removed');
});

test('a kms that is configured later wraps the sealed secrets', async (t) => {
  const dir = tempDirFor(t);
  const kms = new FakeKms();
  {
    await using open = await openTest({ dir });
    await open.providers.put('github', GITHUB, NEVER);
  }
  await using open = await openTest({ dir, kms });
  assert.equal(kms.wraps, 1);
  assert.equal(await accepts(open.providers.get('github'), SECRET), true);
});

test('without kms and without the cache, nothing could store a secret: the start is refused', async (t) => {
  await assert.rejects(openTest({ dir: tempDirFor(t), caches: false }), {
    code: 'validation',
    message: /secrets.cache/,
  });
});

test('a wrapped secret of another provider or version does not open', async () => {
  const kms = new FakeKms();
  const wrapped = await kms.wrap('github', 1, Buffer.from(SECRET));
  await assert.rejects(kms.unwrap('slack', 1, wrapped));
  await assert.rejects(kms.unwrap('github', 2, wrapped));
});

test('the task removes an ended secret from the disk soon after its end', async (t) => {
  const dir = tempDirFor(t);
  await using open = await openTest({ dir, kms: new FakeKms() });
  const { providers } = open;
  await providers.put('github', GITHUB, NEVER);
  await providers.rotate('github', { secret: SECOND, overlap_ms: 30 }, NEVER);
  const path = join(dir, 'providers', 'github.sealed');
  const before = (await readFile(path)).length;
  await eventually('the first secret ends', () => providers.due().length === 1);
  await refreshed(open);
  const after = (await readFile(path)).length;
  assert.ok(after < before - 100, `${before} to ${after} bytes`);
  assert.equal(await accepts(providers.get('github'), SECOND), true);
});

test('[interop I-5] the task stops at once while kms is away', async (t) => {
  const dir = tempDirFor(t);
  const kms = new FakeKms();
  {
    await using open = await openTest({ dir, kms, caches: false });
    await open.providers.put('github', GITHUB, NEVER);
  }
  kms.isAway = true;
  await using open = await openTest({ dir, kms, caches: false });
  const stopping = new AbortController();
  const task = open.providers.run(stopping.signal);
  stopping.abort(new RonError('draining', 'stop'));
  await task;
  assert.equal(open.providers.due().length, 1);
});

test('amnesia writes nothing, needs no kms, and forgets at the end', async (t) => {
  const dir = tempDirFor(t);
  const kms = new FakeKms();
  {
    await using open = await openTest({ dir: undefined, kms });
    await open.providers.put('github', GITHUB, NEVER);
    await open.providers.rotate('github', { secret: SECOND }, NEVER);
    assert.equal(await accepts(open.providers.get('github'), SECRET), true);
  }
  assert.equal(kms.wraps, 0);
  assert.deepEqual(await readdir(dir), []);
  await using open = await openTest({ dir: undefined, kms });
  assert.deepEqual(open.providers.list(), []);
});

test('no file, description, event, warning or error holds a secret', async (t) => {
  for (const caches of [true, false]) {
    const dir = tempDirFor(t);
    const kms = new FakeKms();
    await using open = await openTest({ dir, kms, caches });
    const { providers, events, warnings } = open;
    const errors: string[] = [];
    const failing = async (work: Promise<unknown>): Promise<void> => {
      const error = await work.then(
        () => assert.fail('it succeeded'),
        (reason: Error) => reason,
      );
      errors.push(`${error.stack} ${JSON.stringify(error)} ${String((error.cause as Error | undefined)?.stack)}`);
    };
    await providers.put('github', GITHUB, NEVER);
    await providers.put('standard', { scheme: 'standard', secret: WHSEC }, NEVER);
    await providers.rotate('github', { secret: SECOND }, NEVER);
    await failing(providers.rotate('github', { secret: THIRD }, NEVER));
    await failing(providers.rotate('github', { secret: `${THIRD} ` }, NEVER));
    await failing(providers.put('standard', { scheme: 'standard', secret: SECRET }, NEVER));
    await failing(providers.put('github', { scheme: 'github', topic: 'x', secret: SECRET }, NEVER));
    kms.isAway = true;
    await failing(providers.put('more', GITHUB, NEVER));
    leaks.shown('descriptions', JSON.stringify(providers.list()));
    leaks.shown('events', JSON.stringify([events, warnings]));
    leaks.shown('errors', errors.join('\n'));
    assert.ok((await showFiles(dir)) >= 3, 'two providers and the catalog');
  }
});

test('the scan finds a secret that is there', async (t) => {
  const dir = tempDirFor(t);
  const { Leaks } = await import('@ron/auth/testing');
  const own = new Leaks();
  own.secret('a webhook secret', SECRET);
  await writeFile(join(dir, 'leak'), Buffer.from(SECRET).toString('base64'));
  own.shown('a file', (await readFile(join(dir, 'leak'))).toString('latin1'));
  assert.deepEqual(own.findings(), ['a webhook secret in a file']);
});
