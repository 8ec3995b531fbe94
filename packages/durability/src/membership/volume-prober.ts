/**
 * Probes volumes for a loss that no read or write notices: a deleted or unmounted directory stays usable through descriptors
 * that are open.
 *
 * Contract: a volume whose probe reports a loss leaves the set within about `PROBE_EVERY_MS`. A probe that fails otherwise or
 * times out has no effect. Bound: one probe of each volume at a time, even if it hangs. Cancellation: by the signal.
 */
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { CoalescedCall, sleep } from '@ron/kernel';
import type { Member } from './member.ts';
import type { VolumeSet } from '../set/volume-set.ts';

/** Why the volume is lost; undefined while it is present. */
export type Probe = () => Promise<string | undefined>;

export interface VolumeProberInit {
  set: VolumeSet;
  /** By the names of volumes. A volume without a probe is not probed. */
  probes: ReadonlyMap<string, Probe>;
}

const PROBE_EVERY_MS = 1000;
const PROBE_MS_MAX = 1000;

export class VolumeProber {
  readonly #init: VolumeProberInit;
  readonly #calls = new WeakMap<Probe, CoalescedCall<string | undefined>>();

  constructor(init: VolumeProberInit) {
    this.#init = init;
  }

  async run(stopping: AbortSignal): Promise<void> {
    while (!stopping.aborted) {
      await this.probe();
      await sleep(PROBE_EVERY_MS, stopping, 'volumes.probe').catch(() => undefined);
    }
  }

  async probe(): Promise<void> {
    // Concurrently: a probe that hangs does not delay the others.
    await Promise.all(this.#init.set.members.map((member) => this.#probe(member)));
  }

  async #probe(member: Member): Promise<void> {
    const { set, probes } = this.#init;
    const probe = member.isReadable ? probes.get(member.name) : undefined;
    if (probe === undefined) return;
    const reason = await this.#callOf(probe)
      .run(PROBE_MS_MAX)
      .catch(() => undefined);
    // Another member may have replaced it meanwhile.
    const isPresent = set.members.includes(member) && member.isReadable;
    if (typeof reason === 'string' && isPresent) set.lifecycle.lose(member.id, reason);
  }

  #callOf(probe: Probe): CoalescedCall<string | undefined> {
    let call = this.#calls.get(probe);
    if (call === undefined) this.#calls.set(probe, (call = new CoalescedCall(probe)));
    return call;
  }
}

/** Detects that the directory of a volume was deleted or replaced by another one. */
export async function directoryProbe(dir: string): Promise<Probe> {
  const segments = join(dir, 'segments');
  const identity = async (): Promise<string> => {
    const { dev, ino } = await stat(segments);
    return `${dev} ${ino}`;
  };
  const known = await identity();
  return async () => {
    try {
      return (await identity()) === known ? undefined : `${dir} was replaced by another directory`;
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      return code === 'ENOENT' || code === 'ENOTDIR' ? `${dir} is gone` : undefined;
    }
  };
}
