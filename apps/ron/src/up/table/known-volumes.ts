/** Reads the list of known volumes that storage keeps in the node's directory. */
import { readFileSync } from 'node:fs';
import { parseKnownVolumes, type KnownVolume } from '@ron/proto';
import { CliError, systemCode } from '../../exits.ts';

/** Empty before the first start. An unreadable file is an error: starting an empty node instead would look like data loss. */
export function knownVolumes(path: string): readonly KnownVolume[] {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    if (systemCode(error) === 'ENOENT' || systemCode(error) === 'ENOTDIR') return [];
    throw new CliError('config', `cannot read ${path} (${systemCode(error)}); name the directories ${HOW}`);
  }
  const known = parseKnownVolumes(text);
  if (known === undefined)
    throw new CliError('config', `${path} is damaged; delete it and name the directories ${HOW}`);
  return known;
}

const HOW = 'once with --set storage.data_dirs=DIR,...';
