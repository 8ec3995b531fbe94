/**
 * Looks at directories from outside, past whatever is open there.
 *
 * Promise: undefined when a directory is gone, fails, or does not answer in `LOOK_MS_MAX`. Bound: one look of a kind at each
 * directory at a time, even if it hangs, so that it keeps one thread.
 */
import { stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { directoryProbe, Inquiry, LATE, type Probe } from '@ron/durability';

const LOOK_MS_MAX = 5000;

export interface DirectoryRoom {
  /** Directories with the same one share their room. */
  readonly device: number;
  readonly total_bytes: number;
  readonly free_bytes: number;
}

export const roomOf = looking(async (dir): Promise<DirectoryRoom> => {
  const [{ dev }, { blocks, bavail, bsize }] = await Promise.all([stat(dir), statfs(dir)]);
  return { device: dev, total_bytes: blocks * bsize, free_bytes: bavail * bsize };
});

/** Tells from now on whether it is still what lies there now. */
export const probeOf: (dir: string) => Promise<Probe | undefined> = looking(directoryProbe);

const segmentsOf = looking((dir) => stat(join(dir, 'segments')));

/** Whether a volume lies there, and not an empty directory or none. */
export const holdsVolume = async (dir: string): Promise<boolean> => (await segmentsOf(dir)) !== undefined;

function looking<T>(look: (dir: string) => Promise<T>): (dir: string) => Promise<T | undefined> {
  const underWay = new Map<string, Inquiry<T>>();
  return async (dir) => {
    const inquiry = underWay.get(dir) ?? new Inquiry(() => look(dir));
    underWay.set(dir, inquiry);
    const found = await inquiry.within(LOOK_MS_MAX).catch(() => undefined);
    if (found === LATE) return undefined;
    underWay.delete(dir);
    return found;
  };
}
