/**
 * Seals the files of the services with the key that each service is given.
 *
 * Earlier versions gave the key of the node to every service, and a node without `RON_KEK` keeps a key beside each file.
 * Contract: a file that opens with the key of its service is left unchanged. One that opens with another known key is sealed
 * again, atomically: a crash leaves the old file or the new one, and the next run continues. One that opens with none is left
 * for its service, which reports it. The services must not run.
 */
import { access } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { kekFromText, SealedFile, serviceKek } from '@ron/custody/sealed';
import { isRonError } from '@ron/kernel';
import { readSecret } from '@ron/log/secret-file';
import type { Planned } from './plan.ts';

/** `kek` is the key of the node; `kek_before` the one that it replaces, if any. */
export async function resealFiles(
  services: readonly Planned[],
  { kek, kek_before }: { readonly kek: string; readonly kek_before?: string },
  signal: AbortSignal,
): Promise<void> {
  for (const { entry, value } of services) {
    for (const { key, name, purpose } of entry.sealed_files ?? []) {
      const place = value(key);
      if (place === undefined) continue;
      const path = name === undefined ? place : join(place, name);
      const before = [kek, ...(kek_before === undefined ? [] : [serviceKek(kek_before, entry.name), kek_before])];
      await reseal({ path, purpose, kek: serviceKek(kek, entry.name), before }, signal);
    }
  }
}

interface Resealing {
  readonly path: string;
  readonly purpose: string;
  readonly kek: string;
  readonly before: readonly string[];
}

async function reseal({ path, purpose, kek, before }: Resealing, signal: AbortSignal): Promise<void> {
  if (!(await exists(path))) return;
  const beside = await readSecret(join(dirname(path), 'kek')).catch(() => undefined);
  for (const each of [kek, ...before, ...(beside === undefined ? [] : [beside])]) {
    const file = await openWith(path, purpose, each, signal);
    if (file === undefined) continue;
    await using opened = file;
    if (each !== kek) await opened.relock({ kek: kekFromText(kek) }, signal);
    return;
  }
}

/** Undefined if the key does not open the file. */
async function openWith(
  path: string,
  purpose: string,
  kek: string,
  signal: AbortSignal,
): Promise<SealedFile<unknown> | undefined> {
  try {
    return await SealedFile.open<unknown>({ path, purpose, unlock: { kek: kekFromText(kek) }, initial: {}, signal });
  } catch (error) {
    if (isRonError(error, 'not_ready') || isRonError(error, 'validation')) return undefined;
    throw error;
  }
}

async function exists(path: string): Promise<boolean> {
  return await access(path).then(
    () => true,
    () => false,
  );
}
