/**
 * Decisions of the operator about a volume: drain, undrain, lose, restore, remove.
 *
 * Promise: a decision takes effect at once, is durable when it resolves, and holds after a restart; the one that was made
 * last counts, even while a directory is being opened. Nothing is emptied that the others have no room for. Deciding the
 * same twice changes nothing. Bound: `DECIDE_MS` for writing it down. Cancellation: by that; ask again.
 */
import { reserveBytes } from '@ron/cas';
import { Deadline, RonError } from '@ron/kernel';
import type { StorageConfig } from '../config.ts';
import { holdsVolume, roomOf } from './directory-looks.ts';
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
  async drain(key: string): Promise<void> {
    const { set } = this.#volumes;
    const slot = this.#open(key);
    const { id, name } = slot;
    if (set.member(id).life !== 'draining') {
      const problem = set.life.whyNotDrain(id) ?? this.#tooFewForStripes() ?? (await this.#tooLittleRoom(slot));
      if (problem !== undefined) throw new RonError('conflict', problem);
    }
    await this.#note((signal) => set.life.drain(id, signal));
    this.#volumes.publish('draining', name, 'it is being emptied');
    this.#volumes.onChange();
  }

  /** It stays after all. */
  async undrain(key: string): Promise<void> {
    const { id, name, spec, isLeaving } = this.#open(key);
    if (spec.isDraining || isLeaving) {
      const why = spec.isDraining ? 'says @draining' : 'does not name it';
      throw new RonError('conflict', `the configuration ${why}: change that and reload`);
    }
    await this.#note((signal) => this.#volumes.set.life.undrain(id, signal));
    this.#volumes.publish('staying', name, 'it is not emptied any more');
    this.#volumes.onChange();
  }

  /** Gives it up: it stays lost until `restore`. */
  async lose(key: string): Promise<void> {
    const slot = this.#slot(key);
    const { id, name } = slot;
    const { set } = this.#volumes;
    if (!set.members.some((member) => member.isReadable && member.id !== id)) {
      throw new RonError('conflict', `${name} is the last volume that is left`);
    }
    slot.giveUp();
    // A directory in which no volume ever was has none to give up.
    if (id === undefined) return;
    if (this.#volumes.memberOf(slot)?.isReadable === true) set.life.lose(id, slot.lost!);
    await this.#note((signal) => set.life.giveUp(id, true, signal));
  }

  /** Takes back one that was lost, an empty directory in its place, or one that was used apart from the others. */
  async restore(key: string): Promise<void> {
    const slot = this.#slot(key);
    const { id: former, name } = slot;
    const { set } = this.#volumes;
    const member = this.#volumes.memberOf(slot);
    if (slot.lost === undefined && member?.isApart === true) {
      member.isTakenIn = true;
      return this.#volumes.onChange();
    }
    // One that took long to open is back before the decision was noted: asking again does that.
    if (slot.lost === undefined && !this.#isGivenUp(slot)) throw new RonError('conflict', `${name} is not lost`);
    slot.isGivenUp = false;
    const isEmpty = slot.lost !== undefined && !(await holdsVolume(name));
    if (slot.lost !== undefined) await this.#volumes.takeBack(slot);
    if (slot.lost !== undefined && !slot.isPlaceless) throw new RonError('conflict', slot.lost);
    const id = slot.id!;
    await this.#note((signal) => set.life.giveUp(id, false, signal));
    // The operator put an empty directory in the place of a volume: that one does not come back.
    const isReplaced = isEmpty && former !== undefined && former !== id;
    if (isReplaced) await this.#note((signal) => this.#volumes.forget(former, { signal }));
  }

  /** Forgets a volume that is empty or lost; `force` also one that may hold the last copy of something. */
  async remove(key: string, force: boolean): Promise<void> {
    const slot = this.#slot(key);
    await this.#note((signal) => this.#volumes.remove(slot, { force, signal }));
  }

  #isGivenUp({ id }: Slot): boolean {
    return id !== undefined && this.#volumes.set.membership.roster.lost.includes(id);
  }

  #slot(key: string): Slot {
    if (!this.#volumes.isSingle) return this.#volumes.slot(key);
    throw new RonError('conflict', 'there is only one volume');
  }

  #open(key: string): Slot & { id: string } {
    const slot = this.#slot(key);
    if (slot.lost === undefined && slot.id !== undefined) return slot as Slot & { id: string };
    throw new RonError('conflict', `${slot.name} is lost: restore or remove it`);
  }

  #tooFewForStripes(): string | undefined {
    const { ec, ec_data_shards, ec_parity_shards } = this.#durability;
    const left = this.#volumes.set.placement.places.length - 1;
    const needed = ec_data_shards + ec_parity_shards;
    if (!ec || left >= needed) return undefined;
    return `stripes of ${ec_data_shards}+${ec_parity_shards} need ${needed} volumes, ${left} would be left: add one first`;
  }

  /** What it holds has to fit on the others: one that does not answer has no room. Directories of one file system share its room. */
  async #tooLittleRoom(slot: Slot & { id: string }): Promise<string | undefined> {
    const { used_bytes } = this.#volumes.set.member(slot.id).volume.stats();
    const others = this.#volumes.set.placement.places.filter(({ id }) => id !== slot.id);
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
