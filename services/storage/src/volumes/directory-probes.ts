/**
 * Probes directories from outside, independently of the volume that is open there.
 *
 * Contract: undefined when a directory is gone, fails, or does not answer within `PROBE_MS_MAX`. Bound: one probe of a kind
 * for each directory at a time, even if it hangs, so that it occupies one thread.
 */
import { stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { directoryProbe, type Probe } from '@ron/durability';
import { CoalescedCall, LATE } from '@ron/kernel';

const PROBE_MS_MAX = 5000;

export interface DirectorySpace {
  /** Directories on the same device share their space. */
  readonly device: number;
  readonly total_bytes: number;
  readonly free_bytes: number;
}

export const spaceOf = probing(async (dir): Promise<DirectorySpace> => {
  const [{ dev }, { blocks, bavail, bsize }] = await Promise.all([stat(dir), statfs(dir)]);
  return { device: dev, total_bytes: blocks * bsize, free_bytes: bavail * bsize };
});

/** A probe that reports when the present directory is deleted or replaced. */
export const probeOf: (dir: string) => Promise<Probe | undefined> = probing(directoryProbe);

const segmentsOf = probing((dir) => stat(join(dir, 'segments')));

/** Whether the directory exists and contains a volume. */
export const holdsVolume = async (dir: string): Promise<boolean> => (await segmentsOf(dir)) !== undefined;

function probing<T>(probe: (dir: string) => Promise<T>): (dir: string) => Promise<T | undefined> {
  const underWay = new Map<string, CoalescedCall<T>>();
  return async (dir) => {
    const call = underWay.get(dir) ?? new CoalescedCall(() => probe(dir));
    underWay.set(dir, call);
    const found = await call.run(PROBE_MS_MAX).catch(() => undefined);
    if (found === LATE) return undefined;
    underWay.delete(dir);
    return found;
  };
}
