/**
 * Replaces the key or passphrase that opens a store.
 *
 * Contract: the steps are: let the new secret open the store too, call `switchTo`, let only the new one open it, and rewrite
 * the file without the pages that held the old key box. A crash leaves a store that opens with the old secret, the new one or
 * both; a second run with either secret as `current` completes. The data key stays the same, so an older copy of the file
 * still opens with the old secret. The store must not be open elsewhere (`conflict`).
 * Bound: the rewrite needs room for one more copy of the file. Cancellation: between the steps.
 */
import { chmod, mkdir, open, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { isRonError, RonError } from '@ron/kernel';
import { tryLock } from '@ron/log';
import type { Unlock } from '../sealed/sealer.ts';
import { LmdbStore } from './lmdb-store.ts';

const FILE = 'data.mdb';
const REWRITTEN = 'rewritten';

export type RekeyStep = 'opened' | 'added' | 'switched' | 'dropped' | 'rewritten';

export interface RekeyInit {
  readonly dir: string;
  readonly current: Unlock;
  readonly next: Unlock;
  /** Makes the next start use the new secret. Runs while both open the store, and again after a crash. */
  switchTo(): Promise<void>;
  /** Called after each step. */
  readonly onStep?: (step: RekeyStep) => void;
  readonly signal: AbortSignal;
}

export async function rekeyStore(init: RekeyInit): Promise<void> {
  const { dir, current, next, onStep = () => undefined, signal } = init;
  await requireStore(dir);
  {
    await using store = await openWithEither(init);
    onStep('opened');
    if (!(await store.opensWith(next, signal))) {
      // An earlier run may have added a secret that was lost with it.
      await store.dropOtherUnlocks(current, signal);
      await store.addUnlock(next, signal);
    }
    onStep('added');
    await init.switchTo();
    onStep('switched');
    signal.throwIfAborted();
    await store.dropOtherUnlocks(next, signal);
    onStep('dropped');
  }
  await rewrite(dir);
  onStep('rewritten');
}

async function requireStore(dir: string): Promise<void> {
  const found = await stat(join(dir, FILE)).catch(() => undefined);
  if (found === undefined) throw new RonError('not_found', `${join(dir, FILE)} does not exist`);
}

async function openWithEither({ dir, current, next, signal }: RekeyInit): Promise<LmdbStore> {
  try {
    return await LmdbStore.open({ dir, tables: [], unlock: current, signal });
  } catch (error) {
    if (!isRonError(error, 'not_ready')) throw error;
    // An earlier run was interrupted after it had dropped the old secret.
    return await LmdbStore.open({ dir, tables: [], unlock: next, signal }).catch(() => {
      throw error;
    });
  }
}

/** LMDB keeps the former content of pages until it reuses them. */
async function rewrite(dir: string): Promise<void> {
  using lock = tryLock(join(dir, 'lock'));
  if (lock === undefined) throw new RonError('conflict', `${dir} is in use by another process`);
  const copy = join(dir, REWRITTEN);
  await rm(copy, { recursive: true, force: true });
  await mkdir(copy, { mode: 0o700 });
  const [lmdb, { LMDB_OPTIONS }] = await Promise.all([import('lmdb'), import('./lmdb-messages.ts')]);
  const env = lmdb.open({ path: dir, ...LMDB_OPTIONS });
  try {
    await env.backup(copy, true);
  } finally {
    await env.close();
  }
  const path = join(copy, FILE);
  await chmod(path, 0o600);
  await sync(path);
  await rename(path, join(dir, FILE));
  await sync(dir);
  await rm(copy, { recursive: true, force: true });
}

async function sync(path: string): Promise<void> {
  await using handle = await open(path, 'r');
  await handle.sync();
}
