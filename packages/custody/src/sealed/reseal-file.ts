/**
 * Seals a file with another secret, if it is not sealed with that one yet.
 *
 * Contract: a file that opens with `next` is left unchanged. One that opens with a secret in `before` is sealed again,
 * atomically: a crash leaves the old file or the new one. A missing file, and one that opens with none of them, is left as it
 * is. Returns whether the file now opens with `next`. No other process may have the file open (`conflict`).
 */
import { access } from 'node:fs/promises';
import { isRonError } from '@ron/kernel';
import { SealedFile } from './sealed-file.ts';
import type { Unlock } from './sealer.ts';

export interface ResealInit {
  readonly path: string;
  /** As for `SealedFile`. */
  readonly purpose: string;
  readonly next: Unlock;
  readonly before: readonly Unlock[];
  readonly signal: AbortSignal;
}

export async function resealFile({ path, purpose, next, before, signal }: ResealInit): Promise<boolean> {
  if (!(await exists(path))) return false;
  for (const unlock of [next, ...before]) {
    const file = await openWith(path, purpose, unlock, signal);
    if (file === undefined) continue;
    await using opened = file;
    if (unlock !== next) await opened.relock(next, signal);
    return true;
  }
  return false;
}

/** Undefined if the secret does not open the file. */
async function openWith(
  path: string,
  purpose: string,
  unlock: Unlock,
  signal: AbortSignal,
): Promise<SealedFile<unknown> | undefined> {
  try {
    return await SealedFile.open<unknown>({ path, purpose, unlock, initial: {}, signal });
  } catch (error) {
    if (isRonError(error, 'not_ready')) return undefined;
    throw error;
  }
}

async function exists(path: string): Promise<boolean> {
  return await access(path).then(
    () => true,
    () => false,
  );
}
