/**
 * Seals the files of the services with the key that each service is given.
 *
 * Earlier versions gave the key of the node to every service, and a node without `RON_KEK` keeps a key beside each file.
 * Contract: as `resealFile`, for each file; after a crash the next run continues. A file that opens with no known key is left
 * for its service, which reports it. The services must not run.
 */
import { dirname, join } from 'node:path';
import { kekFromText, resealFile, serviceKek, type Unlock } from '@ron/custody/sealed';
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
      const replaced = kek_before === undefined ? [] : [serviceKek(kek_before, entry.name), kek_before];
      const before = [kek, ...replaced, ...(await keyBeside(path))].map(unlockOf);
      await resealFile({ path, purpose, next: unlockOf(serviceKek(kek, entry.name)), before, signal });
    }
  }
}

/** The key that a service without `RON_KEK` keeps beside its files. */
async function keyBeside(path: string): Promise<string[]> {
  const text = await readSecret(join(dirname(path), 'kek')).catch(() => undefined);
  return text === undefined ? [] : [text];
}

const unlockOf = (kek: string): Unlock => ({ kek: kekFromText(kek) });
