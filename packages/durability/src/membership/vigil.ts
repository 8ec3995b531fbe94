/**
 * Probes volumes whose loss would go unnoticed: a directory that was deleted or unmounted under a process is still
 * there for the descriptors that are open.
 *
 * Promise: a volume whose probe says that it is gone is lost to the set within about `LOOK_EVERY_MS`.
 * A probe that fails otherwise, or takes too long, says nothing. Bound: one probe of each volume at a time, even if it does not answer.
 * Cancellation: by the signal.
 */
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { sleep } from '@ron/kernel';
import type { Member } from './member.ts';
import { Inquiry } from '../set/patience.ts';
import type { VolumeSet } from '../set/volume-set.ts';

/** Why the volume is gone; undefined while it is there. */
export type Probe = () => Promise<string | undefined>;

export interface VigilInit {
  set: VolumeSet;
  /** By the names of volumes. Those without one are not looked at. */
  probes: ReadonlyMap<string, Probe>;
}

const LOOK_EVERY_MS = 1000;
const LOOK_MS_MAX = 1000;

export class Vigil {
  readonly #init: VigilInit;
  readonly #inquiries = new WeakMap<Probe, Inquiry<string | undefined>>();

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
    // Concurrently: one that does not answer does not delay the others.
    await Promise.all(this.#init.set.members.map((member) => this.#lookAt(member)));
  }

  async #lookAt(member: Member): Promise<void> {
    const { set, probes } = this.#init;
    const probe = member.isReadable ? probes.get(member.name) : undefined;
    if (probe === undefined) return;
    const reason = await this.#inquiryOf(probe)
      .within(LOOK_MS_MAX)
      .catch(() => undefined);
    // Its name may be another one's by now.
    const isThere = set.members.includes(member) && member.isReadable;
    if (typeof reason === 'string' && isThere) set.life.lose(member.id, reason);
  }

  #inquiryOf(probe: Probe): Inquiry<string | undefined> {
    let inquiry = this.#inquiries.get(probe);
    if (inquiry === undefined) this.#inquiries.set(probe, (inquiry = new Inquiry(probe)));
    return inquiry;
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
