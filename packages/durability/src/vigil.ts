/**
 * Looks after volumes whose loss nobody would notice: a directory that was deleted or unmounted under a process is still
 * there for the descriptors that are open.
 *
 * Promise: a volume whose probe says that it is gone is lost to the set within about `LOOK_EVERY_MS`.
 * A probe that fails otherwise, or takes too long, says nothing. Bound: one look at each volume at a time.
 * Cancellation: by the signal.
 */
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { Deadline, sleep } from '@ron/kernel';
import type { VolumeSet } from './volume-set.ts';

/** Why the volume is gone; undefined while it is there. */
export type Probe = () => Promise<string | undefined>;

export interface VigilInit {
  set: VolumeSet;
  /** By the names of volumes. Those without one are not looked at. */
  probes: ReadonlyMap<string, Probe>;
}

const LOOK_EVERY_MS = 1000;
const LOOK_DEADLINE_MS = 5000;

export class Vigil {
  readonly #init: VigilInit;

  constructor(init: VigilInit) {
    this.#init = init;
  }

  async run(stopping: AbortSignal): Promise<void> {
    while (!stopping.aborted) {
      await this.look();
      await sleep(LOOK_EVERY_MS, stopping, 'volumes.look').catch(() => undefined);
    }
  }

  async look(): Promise<void> {
    const { set, probes } = this.#init;
    for (const member of set.members) {
      const probe = member.isReadable ? probes.get(member.name) : undefined;
      if (probe === undefined) continue;
      using deadline = Deadline.after('volumes.look', LOOK_DEADLINE_MS);
      const reason = await deadline.run(probe).catch(() => undefined);
      if (reason !== undefined && member.isReadable) set.life.lose(member.name, reason);
    }
  }
}

/** Whether the directory of a volume is still the one that it was. */
export async function directoryProbe(dir: string): Promise<Probe> {
  const segments = join(dir, 'segments');
  const identity = async (): Promise<string> => {
    const { dev, ino } = await stat(segments);
    return `${dev} ${ino}`;
  };
  const known = await identity();
  return async () => {
    try {
      return (await identity()) === known ? undefined : `${dir} is another directory than it was`;
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      return code === 'ENOENT' || code === 'ENOTDIR' ? `${dir} is gone` : undefined;
    }
  };
}
