/** Shared by the tests of the fill log: entries, keys, and a log in a directory. */
import { join } from 'node:path';
import { Deadline } from '@ron/kernel';
import { realFileSystem, type FileSystem } from '@ron/log';
import type { Address } from '@ron/proto';
import type { Provenance } from '../cache/cached-asset.ts';
import { encodeFill } from './fill-entry.ts';
import { ownKey, type FillKeySource } from './fill-key.ts';
import { KnownCheckpointFile } from './known-checkpoint.ts';
import { SignedFillLog } from './signed-fill-log.ts';

export function provenanceOf(name: string, more: Partial<Provenance> = {}): Provenance {
  return {
    key: `live/tiles.example.org/${name}`,
    host: 'tiles.example.org',
    dialled: '192.0.2.7:443',
    certificate_key: 'ab'.repeat(32),
    etag: `"${name}"`,
    size: 1024,
    address: `b3:${'cd'.repeat(32)}` as Address,
    time_ms: 1_800_000_000_000,
    ...more,
  };
}

export const entriesOf = (...names: readonly string[]): Uint8Array[] =>
  names.map((name) => encodeFill(provenanceOf(name)));

export interface TestLog {
  readonly dir: string;
  readonly log: SignedFillLog;
  readonly warnings: string[];
}

export interface TestLogInit {
  readonly key?: FillKeySource;
  readonly fs?: FileSystem;
  readonly bytes_max?: number;
  readonly checkpoint_ms?: number;
}

/** The log in `root/fills`; the caller disposes it. */
export async function openTestLog(root: string, init: TestLogInit = {}): Promise<TestLog> {
  const { fs = realFileSystem, bytes_max = 1 << 20, checkpoint_ms = 2000 } = init;
  const { signal } = new AbortController();
  const { key = ownKey({ dir: root, fs: realFileSystem, signal }) } = init;
  const warnings: string[] = [];
  const dir = join(root, 'fills');
  const log = await SignedFillLog.open({
    dir,
    fs,
    key,
    known: new KnownCheckpointFile(fs, join(root, 'fills.checkpoint')),
    bytes_max,
    deadline: () => Deadline.after('checkpoint', checkpoint_ms),
    warn: (message) => void warnings.push(message),
    signal,
  });
  return { dir, log, warnings };
}
