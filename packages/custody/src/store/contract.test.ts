/** One suite for all stores, and the faults of the disk for the one that is on it. */
import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { isRonError, NEVER } from '@ron/kernel';
import { LmdbStore } from './lmdb-store.ts';
import { MemoryStore } from './memory-store.ts';
import type { RecordStore } from './record-store.ts';

const KEK = { kek: new Uint8Array(32).fill(3) };
const TABLES = ['keys', 'ops'];
const bytes = (text: string): Buffer => Buffer.from(text);
const text = (value: Uint8Array | undefined): string | undefined => value && Buffer.from(value).toString();

interface TempDir extends AsyncDisposable {
  readonly path: string;
}

async function temporary(): Promise<TempDir> {
  const path = await mkdtemp(join(tmpdir(), 'ron-store-'));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

const openAt = (dir: string, unlock: typeof KEK | { passphrase: string } = KEK): Promise<LmdbStore> =>
  LmdbStore.open({ dir, tables: TABLES, unlock, signal: NEVER });

const put = (store: RecordStore, key: string, value = key, table = 'keys'): Promise<void> =>
  store.commit((draft) => draft.put(table, key, bytes(value)), NEVER);

const STORES: Record<string, () => Promise<{ store: RecordStore; done: () => Promise<void> }>> = {
  MemoryStore: async () => {
    const store = new MemoryStore(1 << 20);
    return { store, done: () => store.close() };
  },
  LmdbStore: async () => {
    const dir = await temporary();
    const store = await openAt(dir.path);
    return { store, done: async () => (await store.close(), await dir[Symbol.asyncDispose]()) };
  },
};

for (const [name, make] of Object.entries(STORES)) {
  const suite = (what: string, run: (store: RecordStore) => Promise<void>): void => {
    test(`${name}: ${what}`, { timeout: 60_000 }, async () => {
      const { store, done } = await make();
      await run(store);
      await done();
    });
  };

  suite('records are put, replaced, removed, counted and listed in order', async (store) => {
    for (const key of ['b', 'a', 'c', 'aa']) await put(store, key);
    await put(store, 'x', 'x', 'ops');
    assert.deepEqual([store.count('keys'), store.count('ops')], [4, 1]);
    const listed = store.range('keys', { start: 'a', end: 'c', limit: 10 }).map(({ key, value }) => [key, text(value)]);
    assert.deepEqual(listed, [
      ['a', 'a'],
      ['aa', 'aa'],
      ['b', 'b'],
    ]);
    assert.equal(store.range('keys', { start: 'aa', end: 'z', limit: 2 }).length, 2);
    await put(store, 'b', 'again');
    await store.commit((draft) => (draft.remove('keys', 'a'), draft.remove('keys', 'none')), NEVER);
    await store.prefetch('keys', ['a', 'b', 'none'], NEVER);
    assert.deepEqual(
      [store.get('keys', 'a'), text(store.get('keys', 'b')), store.count('keys')],
      [undefined, 'again', 3],
    );
  });

  suite('an edit sees earlier edits, and one that throws has no effect on the others', async (store) => {
    const seen: (string | undefined)[] = [];
    const add = (key: string, mustFail = false): Promise<number> =>
      store.commit((draft) => {
        seen.push(text(draft.get('keys', 'n')));
        draft.put('keys', 'n', bytes(key));
        draft.put('keys', key, bytes(key));
        if (mustFail) throw new Error('refused');
        return draft.count('keys');
      }, NEVER);
    const results = await Promise.allSettled([add('1'), add('2', true), add('3')]);
    assert.deepEqual(seen, [undefined, '1', '1']);
    assert.deepEqual(
      results.map((each) => (each.status === 'fulfilled' ? each.value : 'refused')),
      [2, 'refused', 3],
    );
    assert.deepEqual([text(store.get('keys', 'n')), store.get('keys', '2'), store.count('keys')], ['3', undefined, 3]);
  });

  suite('a waiting edit is cancelled by its signal, and the queue is bounded', async (store) => {
    const leaving = new AbortController();
    const first = put(store, 'first');
    const left = store.commit((draft) => draft.put('keys', 'left', bytes('left')), leaving.signal);
    leaving.abort(new Error('left'));
    await assert.rejects(left, /left/);
    await first;
    const many = Array.from({ length: 1100 }, (_, at) => put(store, `many ${at}`));
    const results = await Promise.allSettled(many);
    const refused = results.filter((each) => each.status === 'rejected');
    assert.ok(refused.length > 0 && refused.length < 200, `${refused.length} of 1100 were refused`);
    assert.ok(refused.every((each) => isRonError(each.reason, 'busy')));
    assert.equal(store.get('keys', 'left'), undefined);
    assert.equal(store.count('keys'), 1101 - refused.length);
  });

  suite('records that are too large are refused alone', async (store) => {
    const [large, small] = await Promise.allSettled([
      store.commit((draft) => draft.put('keys', 'large', Buffer.alloc(3 << 20)), NEVER),
      put(store, 'small'),
    ]);
    assert.ok(large.status === 'rejected' && isRonError(large.reason, 'payload_too_large'));
    assert.equal(small.status, 'fulfilled');
  });
}

test('records survive a restart, are sealed, and open only for their store, table and key', async () => {
  await using dir = await temporary();
  {
    await using store = await openAt(dir.path);
    await put(store, 'a name', 'a secret value');
  }
  const file = await readFile(join(dir.path, 'data.mdb'));
  assert.ok(file.includes('a name') && !file.includes('a secret value'));
  assert.equal((await stat(join(dir.path, 'data.mdb'))).mode & 0o777, 0o600);
  await using store = await openAt(dir.path);
  assert.equal(text(store.get('keys', 'a name')), 'a secret value');
  await assert.rejects(openAt(dir.path), (error) => isRonError(error, 'conflict'));
});

test('a modified record is refused, and a wrong key or passphrase changes nothing', async () => {
  await using dir = await temporary();
  {
    await using store = await openAt(dir.path);
    await put(store, 'name', 'v'.repeat(100));
    const sealed = await readFile(join(dir.path, 'data.mdb'));
    assert.ok(sealed.length > 0);
  }
  const path = join(dir.path, 'data.mdb');
  const before = await readFile(path);
  for (const wrong of [{ kek: new Uint8Array(32) }, { passphrase: 'a wrong passphrase' }]) {
    await assert.rejects(
      openAt(dir.path, wrong),
      (error) => isRonError(error, 'not_ready') && /cannot be opened/.test(error.message),
    );
  }
  assert.deepEqual(await readFile(path), before);
  const at = before.lastIndexOf('name') + 60;
  const changed = Buffer.from(before);
  for (let place = before.indexOf('name'); place >= 0; place = before.indexOf('name', place + 1))
    changed[place + 60]! ^= 1;
  assert.ok(at > 60);
  await writeFile(path, changed);
  await using store = await openAt(dir.path);
  assert.throws(
    () => store.get('keys', 'name'),
    (error) => isRonError(error, 'integrity'),
  );
});

test('the key changes in three steps, each of which leaves a store that opens', async () => {
  await using dir = await temporary();
  const next = { kek: new Uint8Array(32).fill(9) };
  {
    await using store = await openAt(dir.path);
    await put(store, 'kept');
    await assert.rejects(store.dropOtherUnlocks(next, NEVER), (error) => isRonError(error, 'conflict'));
    await store.addUnlock(next, NEVER);
    await assert.rejects(store.addUnlock(next, NEVER), (error) => isRonError(error, 'conflict'));
  }
  for (const unlock of [KEK, next]) {
    await using store = await openAt(dir.path, unlock);
    assert.equal(text(store.get('keys', 'kept')), 'kept');
  }
  {
    await using store = await openAt(dir.path, next);
    await store.dropOtherUnlocks(next, NEVER);
  }
  await assert.rejects(openAt(dir.path), (error) => isRonError(error, 'not_ready'));
  await using store = await openAt(dir.path, next);
  assert.equal(text(store.get('keys', 'kept')), 'kept');
});

test('a file that was cut or is not LMDB is refused with its name', async () => {
  await using dir = await temporary();
  {
    await using store = await openAt(dir.path);
    for (let at = 0; at < 50; at++) await put(store, `key ${at}`, 'x'.repeat(3000));
  }
  const path = join(dir.path, 'data.mdb');
  const whole = await readFile(path);
  for (const size of [1, 4096, 8192, Math.floor(whole.length / 2)]) {
    await truncate(path, size);
    await assert.rejects(openAt(dir.path), (error) => isRonError(error, 'integrity') && error.message.includes(path));
    await writeFile(path, whole);
  }
  await writeFile(path, Buffer.alloc(20_000, 'x'));
  await assert.rejects(openAt(dir.path), (error) => isRonError(error, 'integrity'));
});

const isRoot = process.getuid?.() === 0;

test(
  'a full disk refuses with storage_full, loses nothing, and writes again when there is room',
  { skip: !isRoot, timeout: 60_000 },
  async () => {
    await using dir = await temporary();
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=2m', 'tmpfs', dir.path]);
    try {
      const store = await openAt(join(dir.path, 'vault'));
      let written = 0;
      for (;;) {
        const result = await put(store, `key ${written}`, 'x'.repeat(20_000)).catch((error: unknown) => error);
        if (result !== undefined) {
          assert.ok(isRonError(result, 'storage_full'), (result as Error).message);
          break;
        }
        written += 1;
        assert.ok(written < 1000);
      }
      await assert.rejects(put(store, 'more', 'x'.repeat(20_000)), (error) => isRonError(error, 'storage_full'));
      assert.equal(store.count('keys'), written);
      assert.equal(store.get('keys', `key ${written}`), undefined);
      execFileSync('mount', ['-o', 'remount,size=8m', dir.path]);
      await put(store, 'after', 'there is room');
      await store.close();
      await using again = await openAt(join(dir.path, 'vault'));
      assert.equal(again.count('keys'), written + 1);
      for (let at = 0; at < written; at++) assert.equal(again.get('keys', `key ${at}`)?.length, 20_000);
    } finally {
      execFileSync('umount', ['-l', dir.path]);
    }
  },
);

const SYNCED = `
const { LmdbStore } = await import(process.argv[1]);
const { writeSync } = await import('node:fs');
const never = new AbortController().signal;
const store = await LmdbStore.open({ dir: process.argv[2], tables: ['keys'], unlock: { kek: new Uint8Array(32) }, signal: never });
for (let at = 0; at < 5; at++) {
  writeSync(1, 'begin');
  await store.commit((draft) => draft.put('keys', 'key ' + at, Buffer.alloc(500)), never);
  writeSync(1, 'acknowledged');
}
process.exit(0);`;
const hasStrace = spawnSync('strace', ['--version']).status === 0;

test(
  'data is synced before the meta page that points to it, and both before the commit is acknowledged',
  { skip: hasStrace ? false : 'needs strace', timeout: 60_000 },
  async () => {
    await using dir = await temporary();
    const module = new URL('./lmdb-store.ts', import.meta.url).href;
    const trace = join(dir.path, 'trace');
    const args = ['-f', '-qq', '-o', trace, '-e', 'trace=write,writev,pwrite64,fdatasync', '--seccomp-bpf'];
    const store = join(dir.path, 'vault');
    execFileSync('strace', [...args, process.execPath, '--input-type=module', '-e', SYNCED, module, store]);
    const lines = (await readFile(trace, 'utf8')).split('\n');
    const steps = lines.flatMap((line) => {
      if (/write\(1, "begin"/.test(line)) return 'begin';
      if (/write\(1, "acknowledged"/.test(line)) return 'acknowledged';
      if (/fdatasync(\(\d+\)| resumed>\)) += 0/.test(line)) return 'synced';
      // The meta page is written with a descriptor that syncs.
      return /pwrite64\(.*, (40|4136)(\)| <unfinished)/.test(line) ? 'meta' : [];
    });
    const one = ['begin', 'synced', 'meta', 'acknowledged'];
    assert.deepEqual(steps.slice(steps.indexOf('begin')), [one, one, one, one, one].flat());
  },
);

const CHILD = `
const { LmdbStore } = await import(process.argv[1]);
const never = new AbortController().signal;
const store = await LmdbStore.open({ dir: process.argv[2], tables: ['keys', 'ops'], unlock: { kek: new Uint8Array(32).fill(3) }, signal: never });
for (let at = store.count('keys'); ; at++) {
  await store.commit((draft) => { draft.put('keys', 'key ' + at, Buffer.alloc(500)); draft.put('ops', 'op ' + at, Buffer.alloc(9)); }, never);
  process.stdout.write(at + '\\n');
}`;

test(
  'kill -9 under load loses nothing that was acknowledged, and no half of a commit is there',
  { timeout: 120_000 },
  async () => {
    await using dir = await temporary();
    for (let round = 0; round < 3; round++) {
      const module = new URL('./lmdb-store.ts', import.meta.url).href;
      const child = spawn(process.execPath, ['--input-type=module', '-e', CHILD, module, dir.path], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      let last = -1;
      let partial = '';
      child.stdout.on('data', (chunk: Buffer) => {
        const lines = (partial + chunk.toString()).split('\n');
        partial = lines.pop()!;
        if (lines.length > 0) last = Number(lines.at(-1));
        if (last > 20 * (round + 1)) child.kill('SIGKILL');
      });
      await once(child, 'close');
      await using store = await openAt(dir.path);
      assert.ok(store.count('keys') > last, `${last} was acknowledged, there are ${store.count('keys')}`);
      assert.equal(store.count('keys'), store.count('ops'));
      for (let at = 0; at <= last; at++) assert.ok(store.get('keys', `key ${at}`) !== undefined, `key ${at}`);
    }
    assert.ok((await readdir(dir.path)).includes('data.mdb'));
  },
);
