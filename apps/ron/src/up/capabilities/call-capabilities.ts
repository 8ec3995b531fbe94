/**
 * The capabilities with which the services of a node call each other: one file for each call of the table.
 *
 * Contract: a file (0600) holds one token, with the scopes and caveats of its call and the caller as its subject. It is
 * replaced atomically, and only if its token is no longer good; callers read it for each call. Files without a call in the
 * table are removed, so that a dropped call leaves no capability behind.
 */
import { readdir, rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { readCapabilityFile } from '../../capability-file.ts';
import { systemCode } from '../../exits.ts';
import type { Home } from '../../home.ts';
import { writeSecret } from '@ron/log/secret-file';
import { callFiles } from '../table/capability-files.ts';
import type { ServiceEntry } from '../table/service-entry.ts';
import { renewed, type Minter } from './renewal.ts';

/** Creates or renews the capability files of all calls between these services. */
export async function renewCalls(
  home: Home,
  services: readonly ServiceEntry[],
  minter: Minter,
  signal: AbortSignal,
): Promise<void> {
  for (const { path, wanted } of callFiles(home, services)) {
    const before = await readCapabilityFile(path, wanted.audience);
    const after = await renewed(before, wanted, minter, signal);
    if (after !== before) await writeSecret(path, `${after}\n`);
  }
}

/** Removes capability files whose call is no longer in the table. */
export async function removeUnknownCalls(home: Home, table: readonly ServiceEntry[]): Promise<void> {
  const known = new Set(callFiles(home, table).map(({ path }) => path));
  for (const { name } of table) {
    const { dir, owner } = home.of(name);
    const files = (await filesIn(dir)).filter((file) => file.endsWith('.cap') && file !== basename(owner));
    for (const path of files.map((file) => join(dir, file))) if (!known.has(path)) await rm(path, { force: true });
  }
}

async function filesIn(dir: string): Promise<string[]> {
  try {
    return await readdir(dir);
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return [];
    throw error;
  }
}
