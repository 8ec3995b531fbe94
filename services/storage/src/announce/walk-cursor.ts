/**
 * The position of the walk in a file, so that frequent restarts do not leave the last objects without a walk.
 *
 * Contract: a missing or damaged file means the beginning. A position that cannot be written costs only repeated
 * announcements, so the failure is reported and ignored. Without a directory, nothing is stored.
 * Bound: one write at a time, by the announcer.
 */
import { join } from 'node:path';
import { readWhole, writeWhole, type FileSystem } from '@ron/log';
import type { Position } from './object-walk.ts';

const FILE = 'announce-cursor';
const ADDRESS_BYTES = 32;

export interface WalkCursor {
  readonly position: Position;
  save(position: Position): Promise<void>;
}

export interface WalkCursorInit {
  /** Undefined in amnesia. */
  readonly dir: string | undefined;
  readonly fs: FileSystem;
  readonly onProblem: (error: unknown) => void;
}

export async function openWalkCursor({ dir, fs, onProblem }: WalkCursorInit): Promise<WalkCursor> {
  if (dir === undefined) return { position: undefined, save: () => Promise.resolve() };
  const path = join(dir, FILE);
  const bytes = await readWhole(fs, path, ADDRESS_BYTES).catch(onProblem);
  return {
    position: bytes?.length === ADDRESS_BYTES ? bytes : undefined,
    save: (position) => writeWhole(fs, path, position ?? Buffer.alloc(0)).catch(onProblem),
  };
}
