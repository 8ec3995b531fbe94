/** Checks the key files of a node without kms. */
import { FileKeySource } from '@ron/auth';
import { isRonError } from '@ron/kernel/core';
import { messageOf } from '../exits.ts';
import type { Home } from '../home.ts';
import type { ServiceEntry } from '../up/table/service-entry.ts';
import type { Finding } from './finding.ts';

/**
 * A node that runs with kms uses no key file. A stopped node may start with or without kms, so a damaged file is only a
 * warning. The next start creates missing files.
 */
export async function checkKeyFiles(
  home: Home,
  services: readonly ServiceEntry[],
  isRunning: boolean,
  signal: AbortSignal,
): Promise<Finding[]> {
  if (isRunning && services.some(({ derives_keys }) => derives_keys === true)) return [];
  const findings: Finding[] = [];
  for (const path of [home.keys, ...services.map(({ name }) => home.of(name).keys)]) {
    try {
      await using keys = await FileKeySource.open({ path, create: false }, signal);
      void keys;
    } catch (error) {
      if (isRonError(error, 'not_ready') && !isRunning) continue;
      findings.push({ level: isRunning ? 'fail' : 'warn', what: `key file ${path}`, fix: messageOf(error) });
    }
  }
  return findings;
}
