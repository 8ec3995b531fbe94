/**
 * Opens volumes that join a running set, and closes those that the set loses.
 *
 * Contract: a directory is opened once at a time. A volume that cannot be opened stays absent, with the reason. A volume that
 * is abandoned or removed while it is opened does not join. Bound: a caller waits at most `OPEN_MS_MAX` for an opening.
 */
import type { Superblock, Volume } from '@ron/cas';

import { withTimeout } from '@ron/kernel';
import { RonError, sched, type Timer } from '@ron/kernel';
import { memberOf, openSlot, type Slot, type VolumesInit } from './volume-slot.ts';
import type { Volumes } from './volumes.ts';

/** Reads of a lost volume that are under way may still succeed. */
const CLOSE_AFTER_MS = 10_000;
const CLOSE_MS_MAX = 5000;
/** To rebuild a large index may take minutes, a disk may hang forever: the volume joins once it is open. */
const OPEN_MS_MAX = 10_000;

export class VolumeOpener {
  readonly #volumes: Volumes;
  readonly #init: VolumesInit;
  readonly #closings = new Set<Timer>();
  #isClosed = false;

  constructor(volumes: Volumes, init: VolumesInit) {
    this.#volumes = volumes;
    this.#init = init;
  }

  /** Opens the volume of a slot unless it is abandoned or being removed. */
  async open(slot: Slot, wait_ms = OPEN_MS_MAX): Promise<void> {
    if (slot.isPlaceless) return;
    slot.lifecycle.apply({ type: 'open' });
    if (slot.lifecycle.state.kind !== 'opening') return;
    slot.opening ??= this.#open(slot).finally(() => {
      slot.opening = undefined;
      // It was abandoned and restored while an opening ended that failed: the next probe opens it again.
      slot.lifecycle.apply({ type: 'openFailed', reason: slot.problem ?? `${slot.name}: it could not be opened` });
    });
    await withTimeout(slot.opening, wait_ms);
    if (slot.opening === undefined) return;
    const reason = `${slot.name}: it is being opened, which takes long; it joins when that is done`;
    slot.lifecycle.apply({ type: 'delayed', reason });
  }

  /** Closes the volume of a slot that the set has lost. */
  lost(slot: Slot, reason: string): void {
    const member = this.#volumes.memberOf(slot);
    if (member === undefined) return;
    slot.writes = undefined;
    const timer = sched.timer(
      CLOSE_AFTER_MS,
      () => {
        this.#closings.delete(timer);
        void close(member.volume);
      },
      'volumes.close',
    );
    this.#closings.add(timer);
    this.#volumes.publish('lost', slot.name, reason);
    this.#volumes.onChange();
  }

  /** Waits for openings under way, for at most `CLOSE_MS_MAX`. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const timer of this.#closings) timer.cancel();
    this.#closings.clear();
    const openings = this.#volumes.slots.flatMap(({ opening }) => opening ?? []);
    await Promise.all(openings.map((opening) => withTimeout(opening, CLOSE_MS_MAX)));
  }

  /** Never rejects: the slot has the reason. */
  async #open(slot: Slot): Promise<void> {
    const { set } = this.#volumes;
    let volume: Volume | undefined;
    try {
      await close(this.#volumes.memberOf(slot)?.volume);
      volume = await openSlot(slot, this.#init, 'later', (found) => this.#refuseCopy(found));
      if (volume === undefined) return;
      const member = await memberOf(slot, volume);
      if (this.#isClosed) throw new Error('the service is closing');
      set.lifecycle.add(member);
    } catch (error) {
      const reason = `${slot.name}: ${error instanceof Error ? error.message : String(error)}`;
      slot.lifecycle.apply({ type: 'openFailed', reason });
      slot.writes = undefined;
      return await close(volume);
    }
    await this.#volumes.joined(slot);
  }

  #refuseCopy({ id }: Superblock): void {
    const other = this.#volumes.set.members.find((member) => member.id === id && member.isReadable);
    if (other === undefined) return;
    throw new RonError('conflict', `it is a copy of the volume in ${other.name} (${id}): take one out of data_dirs`);
  }
}

/** Records that could not be written are on other volumes. */
async function close(volume: Volume | undefined): Promise<void> {
  if (volume !== undefined) await withTimeout(volume.close(), CLOSE_MS_MAX).catch(() => undefined);
}
