/** A file that cannot be used closes its provider only; a crash leaves each provider old or new. */
import assert from 'node:assert/strict';
import { copyFile, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { CrashFileSystem, FaultyDisk } from '@ron/log/testing';
import { tempDirFor } from '@ron/testkit';
import { accepts, FakeKms, openTest, SECOND, SECRET, THIRD, type TestProviders } from '../testing/support.ts';

/** For each crash point; there are seldom more. */
const IMAGES_MAX = 64;
const GITHUB = { scheme: 'github', secret: SECRET } as const;

async function withTwo(dir: string): Promise<void> {
  await using open = await openTest({ dir });
  await open.providers.put('github', { ...GITHUB, topic: 'hooks.code' }, NEVER);
  await open.providers.put('other', GITHUB, NEVER);
}

const fileOf = (dir: string, name: string): string => join(dir, 'providers', `${name}.sealed`);

const catalogOf = (dir: string): string => join(dir, 'providers', 'catalog');

async function flipByte(path: string): Promise<void> {
  const bytes = await readFile(path);
  bytes[bytes.length - 40]! ^= 1;
  await writeFile(path, bytes);
}

test('a damaged file closes its provider only, with its last descriptor; a new PUT opens it again', async (t) => {
  const dir = tempDirFor(t);
  await withTwo(dir);
  await flipByte(fileOf(dir, 'github'));
  {
    await using open = await openTest({ dir });
    const { providers, events } = open;
    assert.equal(providers.get('github')!.problem, 'its file is damaged or cannot be read');
    assert.doesNotMatch(providers.get('github')!.problem!, /\//, 'strangers see it: no path');
    const { topic, secrets, problem } = providers.describe('github');
    assert.deepEqual([topic, secrets], ['hooks.code', []]);
    assert.match(problem!, /damaged.*github\.sealed/);
    assert.equal(await accepts(providers.get('other'), SECRET), true);
    assert.equal(providers.problem, 'the provider github is closed');
    assert.deepEqual(
      events.map(({ kind }) => kind),
      ['provider closed'],
    );
    await assert.rejects(providers.rotate('github', { secret: SECOND }, NEVER), { code: 'conflict' });
    await assert.rejects(providers.put('github', { scheme: 'github' }, NEVER), { code: 'validation', message: /lost/ });
    const { created, provider } = await providers.put('github', { ...GITHUB, secret: SECOND }, NEVER);
    assert.equal(created, false);
    assert.deepEqual(
      provider.secrets.map(({ version }) => version),
      [2],
      'no version is used twice',
    );
    assert.equal(providers.problem, undefined);
  }
  await using open = await openTest({ dir });
  assert.equal(await accepts(open.providers.get('github'), SECOND), true);
});

test('a provider whose secrets were lost is another one once it is set again', async (t) => {
  const dir = tempDirFor(t);
  await withTwo(dir);
  const incarnations: number[] = [];
  const note = ({ providers }: TestProviders): void => void incarnations.push(providers.get('other')!.incarnation);
  {
    await using open = await openTest({ dir });
    note(open);
  }
  // Nothing that is left knows its incarnation, which is the newest.
  await rm(fileOf(dir, 'other'));
  await flipByte(join(dir, 'providers', 'catalog'));
  await using open = await openTest({ dir });
  await open.providers.put('other', { ...GITHUB, secret: SECOND }, NEVER);
  note(open);
  assert.ok(incarnations[0]! < incarnations[1]!, String(incarnations));
});

test('a damaged file can be removed', async (t) => {
  const dir = tempDirFor(t);
  await withTwo(dir);
  await writeFile(fileOf(dir, 'github'), 'no sealed file');
  {
    await using open = await openTest({ dir });
    await open.providers.remove('github', NEVER);
    assert.equal(open.providers.problem, undefined);
  }
  await using open = await openTest({ dir });
  assert.deepEqual(
    open.providers.list().map(({ name }) => name),
    ['other'],
  );
});

test('a file that kms could not replace stays closed, and nothing of it is lost', async (t) => {
  const dir = tempDirFor(t);
  await withTwo(dir);
  await flipByte(fileOf(dir, 'github'));
  const before = await readFile(fileOf(dir, 'github'));
  const kms = new FakeKms();
  kms.isAway = true;
  await using open = await openTest({ dir, kms });
  await assert.rejects(open.providers.put('github', GITHUB, NEVER), { code: 'not_ready' });
  assert.deepEqual(await readFile(fileOf(dir, 'github')), before);
});

test('a refused change leaves the file of a closed provider, which may be intact, on the disk', async (t) => {
  const dir = tempDirFor(t);
  await withTwo(dir);
  const before = await readFile(fileOf(dir, 'github'));
  const disk = unreadable('github.sealed');
  {
    await using open = await openTest({ dir, fs: disk });
    const { providers } = open;
    assert.match(providers.get('github')!.problem!, /cannot be read/);
    for (const step of ['create', 'write', 'sync'] as const) {
      disk.fail('github.sealed', 'ENOSPC', step);
      await assert.rejects(providers.put('github', { ...GITHUB, secret: SECOND }, NEVER), { code: 'storage_full' });
    }
    disk.mend();
    assert.match(providers.get('github')!.problem!, /cannot be read/);
    assert.deepEqual(await readFile(fileOf(dir, 'github')), before);
  }
  {
    await using open = await openTest({ dir });
    assert.equal(await accepts(open.providers.get('github'), SECRET), true);
  }
  disk.fail('github.sealed', 'EIO', 'read');
  await using open = await openTest({ dir, fs: disk });
  await open.providers.put('github', { ...GITHUB, secret: SECOND }, NEVER);
  assert.equal(await accepts(open.providers.get('github'), SECOND), true);
});

test('an old copy of a file is detected: a secret that was rotated out does not come back', async (t) => {
  const dir = tempDirFor(t);
  await withTwo(dir);
  await copyFile(fileOf(dir, 'github'), join(dir, 'old'));
  {
    await using open = await openTest({ dir });
    await open.providers.rotate('github', { secret: SECOND, overlap_ms: 0 }, NEVER);
  }
  await copyFile(join(dir, 'old'), fileOf(dir, 'github'));
  await using open = await openTest({ dir });
  const { providers } = open;
  assert.equal(providers.get('github')!.problem, 'its file is older than its last change');
  assert.equal(await accepts(providers.get('github'), SECRET), false);
  await providers.put('github', { ...GITHUB, secret: SECOND }, NEVER);
  assert.equal(await accepts(providers.get('github'), SECOND), true);
});

test('the file of a removed provider does not bring it back', async (t) => {
  const dir = tempDirFor(t);
  await withTwo(dir);
  await copyFile(fileOf(dir, 'github'), join(dir, 'old'));
  {
    await using open = await openTest({ dir });
    await open.providers.remove('github', NEVER);
  }
  await copyFile(join(dir, 'old'), fileOf(dir, 'github'));
  await using open = await openTest({ dir });
  assert.equal(open.providers.get('github'), undefined);
});

test('a missing file closes its provider', async (t) => {
  const dir = tempDirFor(t);
  await withTwo(dir);
  await rm(fileOf(dir, 'github'));
  await using open = await openTest({ dir });
  assert.equal(open.providers.describe('github').problem, 'its file is missing');
  assert.equal(await accepts(open.providers.get('other'), SECRET), true);
});

test('the file of one provider does not open as another', async (t) => {
  const dir = tempDirFor(t);
  await withTwo(dir);
  await copyFile(fileOf(dir, 'github'), fileOf(dir, 'other'));
  await using open = await openTest({ dir });
  assert.match(open.providers.get('other')!.problem!, /damaged/);
  assert.equal(await accepts(open.providers.get('github'), SECRET), true);
});

test('a damaged catalog is set aside and rebuilt; the providers stay open', async (t) => {
  const dir = tempDirFor(t);
  await withTwo(dir);
  await flipByte(catalogOf(dir));
  {
    await using open = await openTest({ dir });
    assert.equal(await accepts(open.providers.get('github'), SECRET), true);
    assert.match(open.providers.problem!, /missing or damaged: the files of 2 providers, such as github, may be old/);
  }
  assert.ok((await readdir(join(dir, 'providers'))).includes('catalog.damaged'));
  await rm(fileOf(dir, 'github'));
  await using open = await openTest({ dir });
  assert.equal(open.providers.describe('github').problem, 'its file is missing', 'the rebuilt catalog knows it');
});

/** Reads of a file of this name fail. */
function unreadable(name: string): FaultyDisk {
  const disk = new FaultyDisk();
  disk.fail(name, 'EIO', 'read');
  return disk;
}

test('a catalog that may be intact is not rebuilt: a start with another key, or with a disk that fails, is refused', async (t) => {
  const dir = tempDirFor(t);
  await withTwo(dir);
  await copyFile(fileOf(dir, 'github'), join(dir, 'old'));
  {
    await using open = await openTest({ dir });
    await open.providers.remove('github', NEVER);
  }
  const files = await readdir(join(dir, 'providers'));
  const before = await readFile(catalogOf(dir));
  for (let start = 1; start <= 2; start++) {
    await assert.rejects(openTest({ dir, kek: '22'.repeat(32) }), {
      code: 'not_ready',
      message: /does not open with this key: check RON_KEK/,
    });
    await assert.rejects(openTest({ dir, fs: unreadable('catalog') }), {
      code: 'not_ready',
      message: /catalog of providers cannot be read: .*the disk failed \(EIO\)/,
    });
  }
  assert.deepEqual(await readFile(catalogOf(dir)), before);
  assert.deepEqual(await readdir(join(dir, 'providers')), files);
  await copyFile(join(dir, 'old'), fileOf(dir, 'github'));
  await using open = await openTest({ dir });
  assert.equal(open.providers.get('github'), undefined, 'the intact catalog knows that it was removed');
  assert.equal(open.providers.problem, undefined);
});

test('each damaged catalog is kept under a name of its own, up to eight of them', async (t) => {
  const dir = tempDirFor(t);
  await withTwo(dir);
  const damaged: Buffer[] = [];
  const damage = async (): Promise<void> => {
    await flipByte(catalogOf(dir));
    damaged.push(await readFile(catalogOf(dir)));
  };
  for (let n = 1; n <= 8; n++) {
    await damage();
    await using _ = await openTest({ dir });
  }
  const names = ['catalog.damaged', ...[2, 3, 4, 5, 6, 7, 8].map((n) => `catalog.damaged.${n}`)];
  const kept = (): Promise<Buffer[]> => Promise.all(names.map((name) => readFile(join(dir, 'providers', name))));
  assert.deepEqual(await kept(), damaged);
  await damage();
  await assert.rejects(openTest({ dir }), { code: 'not_ready', message: /remove the files catalog\.damaged/ });
  assert.deepEqual([...(await kept()), await readFile(catalogOf(dir))], damaged);
});

test('a missing catalog is reported at each start, until each provider was set, rotated or removed', async (t) => {
  const dir = tempDirFor(t);
  await withTwo(dir);
  await copyFile(fileOf(dir, 'github'), join(dir, 'old'));
  {
    await using open = await openTest({ dir });
    assert.equal(open.providers.problem, undefined);
    await open.providers.rotate('github', { secret: SECOND, overlap_ms: 0 }, NEVER);
    await open.providers.put('third', GITHUB, NEVER);
  }
  await copyFile(join(dir, 'old'), fileOf(dir, 'github'));
  await rm(catalogOf(dir));
  for (let start = 1; start <= 2; start++) {
    await using open = await openTest({ dir });
    const { providers, events } = open;
    assert.equal(await accepts(providers.get('github'), SECRET), true, 'an old copy is open: it cannot be detected');
    assert.match(providers.problem!, /3 providers, such as github, may be old: check them and rotate/);
    assert.deepEqual(events, [{ kind: 'providers unconfirmed', problem: providers.problem }], `start ${start}`);
    await providers.reconcile('github', NEVER);
    assert.match(providers.problem!, /3 providers/, 'the refresh of secrets confirms nothing');
  }
  {
    await using open = await openTest({ dir });
    await open.providers.rotate('github', { secret: THIRD, overlap_ms: 0 }, NEVER);
    assert.match(open.providers.problem!, /2 providers, such as other/);
    await open.providers.remove('third', NEVER);
  }
  {
    await using open = await openTest({ dir });
    assert.match(open.providers.problem!, /: the file of other may be old/, 'the change is durable');
    await open.providers.put('other', { scheme: 'github' }, NEVER);
    assert.equal(open.providers.problem, undefined);
  }
  await using open = await openTest({ dir });
  assert.deepEqual([open.providers.problem, open.events], [undefined, []]);
});

test('no temporary file stays: of a full disk at once, of a crash at the next start', async (t) => {
  const disk = new FaultyDisk();
  const dir = tempDirFor(t);
  const left = async (): Promise<string[]> => (await readdir(join(dir, 'providers'))).filter((n) => n.endsWith('.tmp'));
  {
    await using open = await openTest({ dir, fs: disk });
    await open.providers.put('github', GITHUB, NEVER);
    disk.fail('.sealed.tmp', 'ENOSPC', 'write');
    await assert.rejects(open.providers.rotate('github', { secret: SECOND }, NEVER), { code: 'storage_full' });
    await assert.rejects(open.providers.put('other', GITHUB, NEVER), { code: 'storage_full' });
    assert.deepEqual(await left(), []);
    disk.mend();
    await writeFile(`${fileOf(dir, 'third')}.tmp`, 'a part of a creation');
  }
  await using _ = await openTest({ dir });
  assert.deepEqual(await left(), []);
});

test('a removal that the disk refuses is not applied, and an old copy of the file is still detected', async (t) => {
  const dir = tempDirFor(t);
  await withTwo(dir);
  await copyFile(fileOf(dir, 'github'), join(dir, 'old'));
  const disk = new FaultyDisk();
  {
    await using open = await openTest({ dir, fs: disk });
    await open.providers.rotate('github', { secret: SECOND, overlap_ms: 0 }, NEVER);
    disk.fail('catalog', 'ENOSPC', 'write');
    await assert.rejects(open.providers.remove('github', NEVER), { code: 'storage_full' });
    disk.mend();
    // Writes the whole catalog.
    await open.providers.put('other', { ...GITHUB, secret: SECOND }, NEVER);
    assert.equal(await accepts(open.providers.get('github'), SECOND), true);
  }
  await copyFile(join(dir, 'old'), fileOf(dir, 'github'));
  await using open = await openTest({ dir });
  assert.equal(open.providers.get('github')!.problem, 'its file is older than its last change');
});

test('a change that the sync of the directory refused says that it may take effect; a repeated one decides it', async () => {
  for (const change of ['remove', 'put', 'rotate'] as const) {
    let isFailing = false;
    const disk = new CrashFileSystem(new Map(), {
      before(operation) {
        if (isFailing && operation === 'syncDir') throw Object.assign(new Error('disk'), { code: 'EIO' });
      },
    });
    const { providers } = await openTest({ dir: '/data', fs: disk });
    await providers.put('github', GITHUB, NEVER);
    const run = async (): Promise<unknown> => {
      if (change === 'remove') return await providers.remove('github', NEVER);
      if (change === 'put') return await providers.put('github', { ...GITHUB, secret: SECOND }, NEVER);
      return await providers.rotate('github', { secret: SECOND, overlap_ms: 0 }, NEVER);
    };
    isFailing = true;
    await assert.rejects(run(), { code: 'not_ready', message: /may take effect at the next start: repeat it/ }, change);
    assert.equal(await accepts(providers.get('github'), SECRET), true, 'it has no effect before');
    isFailing = false;
    await run();
    await providers.close();
    await using next = await openTest({ dir: '/data', fs: disk });
    assert.equal(await accepts(next.providers.get('github'), SECRET), false, change);
    assert.equal(await accepts(next.providers.get('github'), SECOND), change !== 'remove', change);
    assert.equal(next.providers.problem, undefined);
  }
});

test('a change after a refused removal is kept at the next start, even if the catalog could not be written', async () => {
  let failing: 'syncDir' | 'catalog' | undefined;
  const disk = new CrashFileSystem(new Map(), {
    before(operation, path) {
      const isBad = failing === 'syncDir' ? operation === 'syncDir' : failing === 'catalog' && path.includes('catalog');
      if (isBad) throw Object.assign(new Error('disk'), { code: 'EIO' });
    },
  });
  const { providers } = await openTest({ dir: '/data', fs: disk });
  await providers.put('github', GITHUB, NEVER);
  failing = 'syncDir';
  await assert.rejects(providers.remove('github', NEVER), { code: 'not_ready' });
  failing = 'catalog';
  await providers.put('github', { ...GITHUB, secret: SECOND }, NEVER);
  failing = undefined;
  await providers.close();
  await using next = await openTest({ dir: '/data', fs: disk });
  assert.equal(await accepts(next.providers.get('github'), SECOND), true);
});

test('after a power failure at any step, each provider is the old one or the new one, and it is not closed', async () => {
  const disk = new CrashFileSystem();
  const acked: { readonly at: number; readonly holds: string }[] = [];
  {
    await using open = await openTest({ dir: '/data', fs: disk });
    const { providers } = open;
    const done = (holds: string): void => void acked.push({ at: disk.operations, holds });
    await providers.put('github', GITHUB, NEVER);
    done('1');
    await providers.rotate('github', { secret: SECOND, overlap_ms: 0 }, NEVER);
    done('2');
    await providers.remove('github', NEVER);
    done('');
  }
  let images = 0;
  for (let at = 0; at <= disk.operations; at++) {
    for (const image of disk.imagesAt(at, IMAGES_MAX, Math.random)) {
      images += 1;
      await using open = await openTest({ dir: '/data', fs: new CrashFileSystem(image) });
      const [provider] = open.providers.list();
      assert.equal(provider?.problem, undefined, `after ${at} operations`);
      const holds = provider === undefined ? '' : provider.secrets.map(({ version }) => version).join();
      const before = acked.findLastIndex((ack) => ack.at <= at);
      const allowed = [acked[before]?.holds ?? '', acked[before + 1]?.holds];
      assert.ok(allowed.includes(holds), `after ${at} operations: ${holds}, not ${allowed.join(' or ')}`);
    }
  }
  assert.ok(images > 50, `${images} disks`);
});
