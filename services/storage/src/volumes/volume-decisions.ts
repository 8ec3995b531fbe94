/**
 * Decisions of the operator about a volume: drain, undrain, lose, restore, remove.
 *
 * Contract: a decision takes effect at once, is durable once it resolves, and holds after a restart. The last decision counts,
 * even while a directory is being opened. Decisions are idempotent. A volume is not drained unless the others have room for
 * its records. Bound: `DECIDE_MS` to persist a decision. Cancellation: by that deadline; then repeat the request.
 */
import { reserveBytes } from '@ron/log';
import { Deadline, RonError } from '@ron/kernel';
import type { StorageConfig } from '../config.ts';
import { holdsVolume, spaceOf } from './directory-probes.ts';
import type { Slot } from './volume-slot.ts';
import type { Volumes } from './volumes.ts';

/** A volume that cannot write a note within this time is unusable. */
const DECIDE_MS = 5000;

export class VolumeDecisions {
  readonly #volumes: Volumes;
  readonly #durability: StorageConfig['durability'];

  constructor(volumes: Volumes, { durability }: StorageConfig) {
    this.#volumes = volumes;
    this.#durability = durability;
  }

  /** Sends it no new records, and moves its records to other volumes. */
  async drain(key: string): Promise<void> {
    const { set } = this.#volumes;
    const slot = this.#open(key);
    const { id, name } = slot;
    if (!set.member(id).isDraining) {
      const problem = set.lifecycle.whyNotDrain(id) ?? this.#tooFewForStripes() ?? (await this.#tooLittleRoom(slot));
      if (problem !== undefined) throw new RonError('conflict', problem);
    }
    await this.#note((signal) => set.lifecycle.drain(id, signal));
    this.#volumes.publish('draining', name, 'its records are moved to other volumes');
    this.#volumes.onChange();
  }

  /** Cancels a drain. */
  async undrain(key: string): Promise<void> {
    const { id, name, spec, isConfigured } = this.#open(key);
    if (spec.isDraining || !isConfigured) {
      const why = spec.isDraining ? 'says @draining' : 'does not name it';
      throw new RonError('conflict', `the configuration ${why}: change that and reload`);
    }
    await this.#note((signal) => this.#volumes.set.lifecycle.undrain(id, signal));
    this.#volumes.publish('staying', name, 'its records stay');
    this.#volumes.onChange();
  }

  /** Abandons it: it stays closed until `restore`. */
  async lose(key: string): Promise<void> {
    const slot = this.#slot(key);
    const { id, name } = slot;
    const { set } = this.#volumes;
    if (!set.members.some((member) => member.isReadable && member.id !== id)) {
      throw new RonError('conflict', `${name} is the last volume that is left`);
    }
    const reason = slot.abandonedReason;
    if (id !== undefined && this.#volumes.memberOf(slot)?.isReadable === true) set.lifecycle.lose(id, reason);
    slot.lifecycle.apply({ type: 'abandon', reason });
    // A directory in which no volume ever was has none to abandon.
    if (id === undefined) return;
    await this.#note((signal) => set.lifecycle.setAbandoned(id, true, signal));
  }

  /** Reopens a lost volume, makes an empty directory in its place a volume, or adopts a diverged one. */
  async restore(key: string): Promise<void> {
    const slot = this.#slot(key);
    const { id: former, name } = slot;
    const { set } = this.#volumes;
    const member = this.#volumes.memberOf(slot);
    if (slot.isOpen && member?.isDiverged === true) {
      member.apply({ type: 'adopt' });
      return this.#volumes.onChange();
    }
    // A volume that took long to open is back before the decision was noted: repeating the request notes it.
    if (slot.isOpen && !this.#isAbandoned(slot)) throw new RonError('conflict', `${name} is not lost`);
    slot.lifecycle.apply({ type: 'restore' });
    const isEmpty = !slot.isOpen && !(await holdsVolume(name));
    if (!slot.isOpen) await this.#volumes.reopen(slot);
    if (!slot.isOpen && !slot.isPlaceless) throw new RonError('conflict', slot.problem ?? `${name} is being opened`);
    const id = slot.id!;
    await this.#note((signal) => set.lifecycle.setAbandoned(id, false, signal));
    // The operator replaced the volume by an empty directory: the former volume leaves the set.
    const isReplaced = isEmpty && former !== undefined && former !== id;
    if (isReplaced) await this.#note((signal) => this.#volumes.forget(former, { signal }));
  }

  /** Removes a drained or lost volume; with `force` also one that may hold the last copy of a record. */
  async remove(key: string, force: boolean): Promise<void> {
    const slot = this.#slot(key);
    await this.#note((signal) => this.#volumes.remove(slot, { force, signal }));
  }

  #isAbandoned({ id }: Slot): boolean {
    return id !== undefined && this.#volumes.set.membership.roster.lost.includes(id);
  }

  #slot(key: string): Slot {
    if (!this.#volumes.isSingle) return this.#volumes.slot(key);
    throw new RonError('conflict', 'there is only one volume');
  }

  #open(key: string): Slot & { id: string } {
    const slot = this.#slot(key);
    if (slot.isOpen && slot.id !== undefined) return slot as Slot & { id: string };
    throw new RonError('conflict', `${slot.name} is lost: restore or remove it`);
  }

  #tooFewForStripes(): string | undefined {
    const { ec, ec_data_shards, ec_parity_shards } = this.#durability;
    const left = this.#volumes.set.placement.places.length - 1;
    const needed = ec_data_shards + ec_parity_shards;
    if (!ec || left >= needed) return undefined;
    return `stripes of ${ec_data_shards}+${ec_parity_shards} need ${needed} volumes, ${left} would be left: add one first`;
  }

  /** Its records have to fit on the others. A volume that does not answer has no space; directories of one device share theirs. */
  async #tooLittleRoom(slot: Slot & { id: string }): Promise<string | undefined> {
    const { used_bytes } = this.#volumes.set.member(slot.id).volume.stats();
    const others = this.#volumes.set.placement.places.filter(({ id }) => id !== slot.id);
    const spaces = await Promise.all(others.map(({ name }) => spaceOf(name)));
    const free = new Map<number, number>();
    for (const { device, total_bytes, free_bytes } of spaces.filter((space) => space !== undefined)) {
      free.set(device, Math.max(0, free_bytes - reserveBytes(total_bytes)));
    }
    const free_bytes = [...free.values()].reduce((sum, bytes) => sum + bytes, 0);
    if (used_bytes <= free_bytes) return undefined;
    return `${slot.name} holds ${used_bytes} bytes, the others have room for ${free_bytes}: add a volume, or compact first`;
  }

  async #note(decide: (signal: AbortSignal) => Promise<void>): Promise<void> {
    using deadline = Deadline.after('volumes.decide', DECIDE_MS);
    await deadline.run(decide);
  }
}
