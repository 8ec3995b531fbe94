/**
 * Seals the files of the services with the key that each service is given.
 *
 * Earlier versions gave the key of the node to every service, and a node without `RON_KEK` keeps a key beside each file.
 * Contract: as `resealFile`, for each file; after a crash the next run continues. A file that opens with no known key is left
 * for its service, which reports it. The services must not run.
 */
import { readdir } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { kekFromText, resealFile, serviceKek, type Unlock } from '@ron/custody/sealed';
import { readSecret } from '@ron/log/secret-file';
import { systemCode } from '../exits.ts';
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
      const pattern = name === undefined ? place : join(place, name);
      const replaced = kek_before === undefined ? [] : [serviceKek(kek_before, entry.name), kek_before];
      const before = [kek, ...replaced, ...(await keyBeside(pattern))].map(unlockOf);
      const next = unlockOf(serviceKek(kek, entry.name));
      for (const file of await matching(pattern, purpose)) await resealFile({ ...file, next, before, signal });
    }
  }
}

/** The files that a path with at most one star, in its last part, stands for. */
async function matching(path: string, purpose: string): Promise<{ readonly path: string; readonly purpose: string }[]> {
  const dir = dirname(path);
  const [start = '', end] = basename(path).split('*');
  if (end === undefined) return [{ path, purpose }];
  const names = await readdir(dir).catch((error: unknown) => {
    if (systemCode(error) === 'ENOENT') return [];
    throw error;
  });
  return names
    .filter((name) => name.startsWith(start) && name.endsWith(end) && name.length > start.length + end.length)
    .map((name) => {
      const word = name.slice(start.length, name.length - end.length);
      return { path: join(dir, name), purpose: purpose.replace('*', word) };
    });
}

/** The key that a service without `RON_KEK` keeps beside its files. */
async function keyBeside(path: string): Promise<string[]> {
  const text = await readSecret(join(dirname(path), 'kek')).catch(() => undefined);
  return text === undefined ? [] : [text];
}

const unlockOf = (kek: string): Unlock => ({ kek: kekFromText(kek) });
