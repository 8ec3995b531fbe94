/**
 * What an operator decides about a volume.
 *
 * Promise: a decision takes effect at once, is durable when it resolves, and holds after a restart; the one that was made
 * last counts, also while a directory is being opened. Nothing is emptied that the others have no room for. Deciding the
 * same twice changes nothing. Bound: `DECIDE_MS` for writing it down. Cancellation: by that; ask again.
 */
import { reserveBytes } from '@ron/cas';
import { Deadline, RonError } from '@ron/kernel';
import type { StorageConfig } from './config.ts';
import { roomOf } from './directory-looks.ts';
import type { Slot } from './volume-slot.ts';
import type { Volumes } from './volumes.ts';

/** A volume that cannot take a note within this time is as good as lost. */
const DECIDE_MS = 5000;

export class VolumeDecisions {
  readonly #volumes: Volumes;
  readonly #durability: StorageConfig['durability'];

  constructor(volumes: Volumes, { durability }: StorageConfig) {
    this.#volumes = volumes;
    this.#durability = durability;
  }

  /** Gives it nothing more; what it has is moved to others. */
  async drain(name: string): Promise<void> {
    const { set } = this.#volumes;
    const slot = this.#open(name);
    if (set.member(name).life !== 'draining') {
      const problem = set.life.whyNotDrain(name) ?? this.#tooFewForStripes() ?? (await this.#tooLittleRoom(slot));
      if (problem !== undefined) throw new RonError('conflict', problem);
    }
    await this.#note((signal) => set.life.drain(name, signal));
    this.#volumes.publish('draining', name, 'it is being emptied');
    this.#volumes.onChange();
  }

  /** It stays after all. */
  async undrain(name: string): Promise<void> {
    const { spec, isLeaving } = this.#open(name);
    if (spec.isDraining || isLeaving) {
      const why = spec.isDraining ? 'says @draining' : 'does not name it';
      throw new RonError('conflict', `the configuration ${why}: change that and reload`);
    }
    await this.#note((signal) => this.#volumes.set.life.undrain(name, signal));
    this.#volumes.publish('staying', name, 'it is not emptied any more');
    this.#volumes.onChange();
  }

  /** Expects nothing of it any more, until somebody says otherwise. */
  async lose(name: string): Promise<void> {
    const slot = this.#slot(name);
    const { set } = this.#volumes;
    if (!set.members.some((member) => member.isReadable && member.name !== name)) {
      throw new RonError('conflict', `${name} is the last volume that is left`);
    }
    slot.giveUp();
    if (this.#volumes.memberOf(slot)?.isReadable === true) set.life.lose(name, slot.lost!);
    await this.#note((signal) => set.life.giveUp(name, true, signal));
  }

  /** Takes back one that was lost, an empty directory in its place, or one that was used apart from the others. */
  async restore(name: string): Promise<void> {
    const slot = this.#slot(name);
    const { set } = this.#volumes;
    const member = this.#volumes.memberOf(slot);
    if (slot.lost === undefined && member?.isApart === true) {
      member.isTakenIn = true;
      return this.#volumes.onChange();
    }
    // One that took long to open is back before the decision was noted: asking again does that.
    if (slot.lost === undefined && !set.membership.roster.lost.includes(name))
      throw new RonError('conflict', `${name} is not lost`);
    slot.isGivenUp = false;
    if (slot.lost !== undefined) await this.#volumes.takeBack(slot);
    if (slot.lost !== undefined) throw new RonError('conflict', slot.lost);
    await this.#note((signal) => set.life.giveUp(name, false, signal));
  }

  /** Forgets a volume that is empty or lost; `force` also one that may hold the last copy of something. */
  async remove(name: string, force: boolean): Promise<void> {
    const slot = this.#slot(name);
    await this.#note((signal) => this.#volumes.remove(slot, { force, signal }));
  }

  #slot(name: string): Slot {
    if (!this.#volumes.isSingle) return this.#volumes.slot(name);
    throw new RonError('conflict', 'there is one volume: what it holds has nowhere else to be');
  }

  #open(name: string): Slot {
    const slot = this.#slot(name);
    if (slot.lost === undefined) return slot;
    throw new RonError('conflict', `${name} is lost: restore or remove it`);
  }

  #tooFewForStripes(): string | undefined {
    const { ec, ec_data_shards, ec_parity_shards } = this.#durability;
    const left = this.#volumes.set.placement.places.length - 1;
    const needed = ec_data_shards + ec_parity_shards;
    if (!ec || left >= needed) return undefined;
    return `stripes of ${ec_data_shards}+${ec_parity_shards} need ${needed} volumes, ${left} would be left: add one first`;
  }

  /** What it holds has to fit on the others: one that does not answer has no room. Directories of one file system share its room. */
  async #tooLittleRoom(slot: Slot): Promise<string | undefined> {
    const { used_bytes } = this.#volumes.set.member(slot.name).volume.stats();
    const others = this.#volumes.set.placement.places.filter(({ name }) => name !== slot.name);
    const looks = await Promise.all(others.map(({ name }) => roomOf(name)));
    const rooms = new Map<number, number>();
    for (const { device, total_bytes, free_bytes } of looks.filter((look) => look !== undefined)) {
      rooms.set(device, Math.max(0, free_bytes - reserveBytes(total_bytes)));
    }
    const free_bytes = [...rooms.values()].reduce((sum, room) => sum + room, 0);
    if (used_bytes <= free_bytes) return undefined;
    return `${slot.name} holds ${used_bytes} bytes, the others have room for ${free_bytes}: add a volume, or compact first`;
  }

  async #note(decide: (signal: AbortSignal) => Promise<void>): Promise<void> {
    using deadline = Deadline.after('volumes.decide', DECIDE_MS);
    await deadline.run(decide);
  }
}
