/** Opens the fill log of a configuration: its directory or memory, and the key that signs it. */
import { join } from 'node:path';
import type { Deadline } from '@ron/kernel';
import { MemoryDisk, type FileSystem } from '@ron/log';
import type { EdgeConfig } from '../config.ts';
import { ownKey, type FillKeySource } from './fill-key.ts';
import { kmsKey } from './kms-key.ts';
import { KnownCheckpointFile } from './known-checkpoint.ts';
import { SignedFillLog } from './signed-fill-log.ts';

/** In amnesia: about 10 000 entries. */
const AMNESIA_BYTES_MAX = 4 * 1024 * 1024;

export interface OpenFillLogInit {
  readonly config: EdgeConfig;
  /** The data directory; undefined in amnesia. */
  readonly dir: string | undefined;
  readonly fs: FileSystem;
  readonly deadline: () => Deadline;
  readonly warn: (message: string, error?: unknown) => void;
  readonly signal: AbortSignal;
}

export async function openFillLog(init: OpenFillLogInit): Promise<SignedFillLog> {
  const { config, dir, deadline, warn, signal } = init;
  if (dir === undefined) {
    // Neither this disk nor that of kms learns of the fills: the key is in memory, too.
    const fs = new MemoryDisk(4 * AMNESIA_BYTES_MAX);
    const key = ownKey({ dir, fs, signal });
    return await SignedFillLog.open({
      dir: '/fills',
      fs,
      key,
      known: undefined,
      bytes_max: AMNESIA_BYTES_MAX,
      deadline,
      warn,
      signal,
    });
  }
  const { fs } = init;
  const log_dir = join(dir, 'fills');
  const known = new KnownCheckpointFile(fs, join(dir, 'fills.checkpoint'));
  const key = keyOf(init, dir, log_dir);
  return await SignedFillLog.open({
    dir: log_dir,
    fs,
    key,
    known,
    bytes_max: config.fill.log_bytes_max,
    deadline,
    warn,
    signal,
  });
}

function keyOf({ config, fs, signal }: OpenFillLogInit, dir: string, log_dir: string): FillKeySource {
  const { kms_url: url, kms_capability_file: capability_file } = config.edge;
  if (url === undefined) return ownKey({ dir, fs, signal });
  return kmsKey({ url, pin: config.auth.kms_pin, capability_file: capability_file!, fs, dir: log_dir });
}
