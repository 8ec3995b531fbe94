/** Files of the database that are damaged, foreign, newer, older, in use, or on a disk that is full or read-only. */
import assert from 'node:assert/strict';
import { copyFile, open, readdir, readFile, stat, truncate, writeFile } from 'node:fs/promises';
import { DatabaseSync } from 'node:sqlite';
import { join } from 'node:path';
import { test } from 'node:test';
import { isRonError } from '@ron/kernel';
import { eventually, mountTmpfs, NO_MOUNT, tempDir } from '@ron/testkit';
import { openWriter } from '../../src/store/thread/open-database.ts';
import type { SqliteStore } from '../../src/store/sqlite-store.ts';
import { addressOf, KEY, NOW_MS, openStore, position, published } from './support.ts';

const FILE = 'index.db';
const QUOTAS = { providers_max: 1_000_000, providers_per_subject: 1_000_000, names_seen: 10 };
const quotas = (): typeof QUOTAS => QUOTAS;

/** Creates a database with one name and closes it; returns its epoch. */
async function prepare(dir: string): Promise<string> {
  await using store = await openStore(dir, { quotas });
  await store.apply([published('a', 1)], position(1));
  return store.epoch;
}

const entries = (from: number, count: number) =>
  Array.from({ length: count }, (_, at) => ({
    address: addressOf(`o${from + at}`),
    size: 1,
    media_type: 'text/plain',
  }));

test('a second process on the directory is refused, and a closed store releases it', async () => {
  await using temp = await tempDir();
  {
    await using store = await openStore(temp.path);
    await assert.rejects(openStore(temp.path), {
      code: 'conflict',
      message: `${temp.path} is in use by another process`,
    });
    assert.equal(await store.countObjects(), 0);
  }
  await using again = await openStore(temp.path);
  assert.equal(again.problem, undefined);
});

test('the files are readable by their owner only', async () => {
  await using temp = await tempDir();
  await using store = await openStore(temp.path);
  await store.newEpoch();
  for (const file of await readdir(temp.path)) {
    if (file.startsWith(FILE)) assert.equal((await stat(join(temp.path, file))).mode & 0o077, 0, file);
  }
});

for (const [kind, damage] of [
  [
    'another file',
    (path: string) => writeFile(path, 'this is not a database at all, but it is long enough '.repeat(99)),
  ],
  ['a truncated file', (path: string) => truncate(path, 5000)],
  ['a damaged header', (path: string) => overwrite(path, 0, 64)],
  ['a damaged schema', (path: string) => overwrite(path, 100, 1500)],
  ['the database of another program', (path: string) => overwriteApplication(path)],
] as const) {
  test(`${kind} is moved aside and replaced by an empty database`, async () => {
    await using temp = await tempDir();
    const path = join(temp.path, FILE);
    writeDatabase(path);
    await damage(path);
    const bytes = await readFile(path);
    const { db, movedAside } = openWriter(path);
    using _ = db;
    assert.deepEqual(await readFile(movedAside!.path), bytes, 'it is kept');
    assert.equal(db.prepare('SELECT applied FROM state').get()!['applied'], 0);
  });
}

test('of the files that were moved aside the newest four are kept', async () => {
  await using temp = await tempDir();
  for (let round = 0; round < 6; round++) {
    await writeFile(join(temp.path, FILE), `not a database ${round} `.repeat(100));
    openWriter(join(temp.path, FILE)).db.close();
  }
  const aside = (await readdir(temp.path)).filter((file) => file.includes('.damaged-')).toSorted();
  assert.equal(aside.length, 4);
  assert.match(await readFile(join(temp.path, aside[0]!), 'utf8'), /not a database 2/);
});

test('an empty file is a new database', async () => {
  await using temp = await tempDir();
  const path = join(temp.path, FILE);
  await writeFile(path, '');
  const { db, movedAside } = openWriter(path);
  db.close();
  assert.equal(movedAside, undefined);
});

test('a database of a newer version is refused and left unchanged', async () => {
  await using temp = await tempDir();
  const path = join(temp.path, FILE);
  writeDatabase(path);
  inDatabase(path, 'PRAGMA user_version = 99');
  const bytes = await readFile(path);
  const message = /has version 99 and this program reads version 1/;
  await assert.rejects(openStore(temp.path), { code: 'conflict', message });
  assert.deepEqual(await readFile(path), bytes);
});

test('the store reports a file that it moved aside, and begins a new epoch', async () => {
  await using temp = await tempDir();
  const epoch = await prepare(temp.path);
  await overwrite(join(temp.path, FILE), 0, 64);
  const moved: string[] = [];
  await using store = await openStore(temp.path, { onMovedAside: ({ why }) => moved.push(why) });
  assert.deepEqual([moved.length, store.applied], [1, position(0)]);
  assert.notEqual(store.epoch, epoch);
  await store.apply([published('a', 1)], position(1));
  assert.equal((await store.name(KEY, 'a'))?.seq, 1);
});

test('an old copy says how much of the log it has applied, so that the rest is applied', async () => {
  await using temp = await tempDir();
  const path = join(temp.path, FILE);
  await prepare(temp.path);
  await copyFile(path, join(temp.path, 'copy'));
  {
    await using store = await openStore(temp.path);
    await store.apply([published('a', 2), published('a', 3)], position(3));
  }
  await copyFile(join(temp.path, 'copy'), path);
  await using store = await openStore(temp.path);
  assert.deepEqual(store.applied, position(1));
  await assert.rejects(store.apply([published('a', 3)], position(3)), { reason: 'gap' });
  await store.apply([published('a', 2), published('a', 3)], position(3));
  assert.equal((await store.highestSeq(KEY, 'a'))?.seq, 3);
});

test('pages that are damaged while the database is in use are found, and it is replaced', async () => {
  await using temp = await tempDir();
  const path = join(temp.path, FILE);
  {
    await using store = await openStore(temp.path, { quotas });
    await store.apply([published('a', 1)], position(1));
    for (let at = 0; at < 5; at++) await store.announce('s', entries(at * 1000, 1000), [], NOW_MS);
  }
  let rebuilt = 0;
  await using store = await openStore(temp.path, { quotas, onRebuilt: () => (rebuilt += 1) });
  assert.equal(await store.countObjects(), 5000);
  const { epoch } = store;
  const { size } = await stat(path);
  // All but the first pages, which are in the caches of the threads.
  await overwrite(path, 65_536, size - 65_536);
  await eventually('the damage is met', () =>
    Promise.all(Array.from({ length: 50 }, (_, at) => store.object(addressOf(`o${at * 97}`)))).then(
      () => rebuilt > 0,
      (error: unknown) => {
        // On a busy machine a call may end at its deadline.
        assert.ok(isRonError(error, 'integrity') || isRonError(error, 'timeout'), String(error));
        return isRonError(error, 'integrity');
      },
    ),
  );
  await eventually('it is replaced', () => rebuilt === 1);
  assert.notEqual(store.epoch, epoch);
  await eventually('the gate says so', () => store.problem === 'the index database is being rebuilt from the name log');
  await store.apply([published('a', 1)], position(1));
  assert.equal(store.problem, undefined);
  assert.equal((await store.name(KEY, 'a'))?.seq, 1);
  assert.equal(await store.countObjects(), 0);
  assert.equal((await readdir(temp.path)).filter((file) => /\.damaged-.*Z$/.test(file)).length, 1);
});

async function fill(store: SqliteStore): Promise<unknown> {
  for (let at = 0; at < 1000; at++) {
    const failure = await store.announce('s', entries(at * 200, 200), [], NOW_MS).catch((error: unknown) => error);
    // On a busy machine a call may end at its deadline.
    if (failure instanceof Error && !isRonError(failure, 'timeout')) return failure;
  }
  return undefined;
}

test('a full disk refuses writes; reads go on, and so do writes once there is room', async (t) => {
  await using temp = await tempDir();
  using mount = mountTmpfs(temp.path, '3m');
  if (mount === undefined) return t.skip(NO_MOUNT);
  {
    await using store = await openStore(temp.path, { quotas });
    await store.apply([published('a', 1)], position(1));
    assert.ok(isRonError(await fill(store), 'storage_full'));
    assert.equal((await store.name(KEY, 'a'))?.seq, 1);
    const count = await store.countObjects();
    assert.ok(count > 0 && count % 200 === 0, 'a refused announcement left nothing behind');
    assert.equal(store.problem, undefined);
    assert.ok(mount.remount('size=32m'));
    await store.apply([published('a', 2)], position(2));
  }
  assert.ok(mount.remount('ro'));
  await assert.rejects(openStore(temp.path), { code: 'not_ready', message: /read-only/ });
  assert.ok(mount.remount('rw'));
  await using store = await openStore(temp.path);
  assert.equal((await store.name(KEY, 'a'))?.seq, 2);
});

async function overwrite(path: string, from: number, bytes: number): Promise<void> {
  await using file = await open(path, 'r+');
  await file.write(Buffer.alloc(bytes, 0xa5), 0, bytes, from);
}

/** A database as the writer thread creates it, with an applied entry. */
function writeDatabase(path: string): void {
  using db = openWriter(path).db;
  db.exec('UPDATE state SET applied = 1; PRAGMA wal_checkpoint(TRUNCATE)');
}

function inDatabase(path: string, sql: string): void {
  using db = new DatabaseSync(path);
  db.exec(sql);
}

const overwriteApplication = (path: string): Promise<void> =>
  Promise.resolve(inDatabase(path, 'PRAGMA application_id = 1; PRAGMA wal_checkpoint(TRUNCATE)'));
