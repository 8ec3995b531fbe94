/** The key of a store can be replaced, and a crash at any step leaves a store that opens. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { isRonError, NEVER, RonError } from '@ron/kernel';
import { tempDirFor } from '@ron/testkit';
import type { Unlock } from '../sealed/sealer.ts';
import { LmdbStore } from './lmdb-store.ts';
import { rekeyStore, type RekeyStep } from './rekey.ts';
import type { StoreHeader } from './store-header.ts';

const KILLED = fileURLToPath(new URL('../../test/rekey-killed.ts', import.meta.url));
const kek = (byte: number): { kek: Buffer } => ({ kek: Buffer.alloc(32, byte) });
const [OLD, NEW, OTHER] = [kek(1), kek(2), kek(3)];
const PASSPHRASE: Unlock = { passphrase: 'correct horse', scrypt: { log2_n: 10, r: 8, p: 1 } };
const TABLES = ['things'];
const switchTo = (): Promise<void> => Promise.resolve();

const open = (dir: string, unlock: Unlock): Promise<LmdbStore> =>
  LmdbStore.open({ dir, tables: TABLES, unlock, signal: NEVER });

/** A store with records, closed. */
async function makeStore(dir: string): Promise<void> {
  await using store = await open(dir, OLD);
  for (let at = 0; at < 50; at++)
    await store.commit((draft) => draft.put('things', `key ${at}`, Buffer.alloc(2000, at)), NEVER);
}

async function requireRecords(dir: string, unlock: Unlock): Promise<void> {
  await using store = await open(dir, unlock);
  assert.equal(store.count('things'), 50);
  assert.deepEqual(store.get('things', 'key 7'), Buffer.alloc(2000, 7));
}

async function opens(dir: string, unlock: Unlock): Promise<boolean> {
  try {
    await (await open(dir, unlock)).close();
    return true;
  } catch (error) {
    assert.ok(isRonError(error, 'not_ready'), String(error));
    return false;
  }
}

test('only the new key opens the store, its records stay, and the file no longer contains the old key box', async (t) => {
  const dir = tempDirFor(t);
  await makeStore(dir);
  const boxesIn = (text: string): string[] =>
    [...text.matchAll(/\{"format":1,[^}]*\}/g)].flatMap(([json]) => (JSON.parse(json) as StoreHeader).boxes_b64);
  const [box] = boxesIn(await readFile(join(dir, 'data.mdb'), 'latin1'));
  await rekeyStore({ dir, current: OLD, next: NEW, switchTo, signal: NEVER });
  assert.equal(await opens(dir, OLD), false);
  await requireRecords(dir, NEW);
  const after = await readFile(join(dir, 'data.mdb'), 'latin1');
  assert.ok(box !== undefined && !after.includes(box), 'the old key box was erased');
  assert.equal((await stat(join(dir, 'data.mdb'))).mode & 0o777, 0o600);
  assert.ok(!(await readdir(dir)).includes('rewritten'));
  await rekeyStore({ dir, current: NEW, next: PASSPHRASE, switchTo, signal: NEVER });
  await requireRecords(dir, PASSPHRASE);
});

test('kill -9 after any step leaves a store that opens, and a second run completes', async (t) => {
  const steps: RekeyStep[] = ['opened', 'added', 'switched', 'dropped', 'rewritten'];
  for (const step of steps) {
    const dir = join(tempDirFor(t), 'vault');
    await makeStore(dir);
    const args = [KILLED, dir, OLD.kek.toString('hex'), NEW.kek.toString('hex'), step];
    assert.equal(spawnSync(process.execPath, args).signal, 'SIGKILL', step);
    const both = [await opens(dir, OLD), await opens(dir, NEW)];
    const isDone = step === 'dropped' || step === 'rewritten';
    assert.deepEqual(both, isDone ? [false, true] : [true, step !== 'opened'], step);
    await rekeyStore({ dir, current: OLD, next: NEW, switchTo, signal: NEVER });
    assert.deepEqual([await opens(dir, OLD), await opens(dir, NEW)], [false, true], step);
    await requireRecords(dir, NEW);
  }
});

test('a second run with another new key replaces the one that was lost with the first', async (t) => {
  const dir = tempDirFor(t);
  await makeStore(dir);
  const failing = (): Promise<void> => Promise.reject(new RonError('storage_full', 'no room'));
  await assert.rejects(rekeyStore({ dir, current: OLD, next: OTHER, switchTo: failing, signal: NEVER }), /no room/);
  assert.deepEqual([await opens(dir, OLD), await opens(dir, OTHER)], [true, true]);
  await rekeyStore({ dir, current: OLD, next: NEW, switchTo, signal: NEVER });
  assert.deepEqual([await opens(dir, OLD), await opens(dir, OTHER), await opens(dir, NEW)], [false, false, true]);
});

test('a wrong key, an open store and a missing store are refused, and nothing changes', async (t) => {
  const dir = tempDirFor(t);
  await assert.rejects(rekeyStore({ dir, current: OLD, next: NEW, switchTo, signal: NEVER }), { code: 'not_found' });
  await makeStore(dir);
  await assert.rejects(rekeyStore({ dir, current: OTHER, next: NEW, switchTo, signal: NEVER }), { code: 'not_ready' });
  {
    await using store = await open(dir, OLD);
    await assert.rejects(rekeyStore({ dir, current: OLD, next: NEW, switchTo, signal: NEVER }), { code: 'conflict' });
    assert.equal(store.count('things'), 50);
  }
  await requireRecords(dir, OLD);
});
