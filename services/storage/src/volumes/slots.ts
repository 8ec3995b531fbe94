/**
 * The directories of a node, and absent volumes of the roster: one slot each.
 *
 * Contract: every volume on the roster has a slot. Bound: the configured directories and the roster.
 */
import type { Roster } from '@ron/durability';
import { RonError } from '@ron/kernel';
import { absentSlot, type Slot } from './volume-slot.ts';

export class Slots {
  readonly #slots: Slot[];

  constructor(slots: readonly Slot[]) {
    this.#slots = [...slots];
  }

  get all(): readonly Slot[] {
    return this.#slots;
  }

  add(slot: Slot): void {
    this.#slots.push(slot);
  }

  delete(slot: Slot): void {
    const index = this.#slots.indexOf(slot);
    if (index >= 0) this.#slots.splice(index, 1);
  }

  /** By its directory, or the id of its volume. */
  get(key: string, { seen }: Roster): Slot {
    const slot =
      this.#slots.find((each) => each.name === key) ??
      this.#slots.find((each) => each.id === key) ??
      // An absent volume is also known by the directory where it was last open.
      this.#slots.find((each) => each.isPlaceless && each.id !== undefined && seen[each.id]?.dir === key);
    if (slot === undefined) throw new RonError('not_found', `there is no volume ${key}`);
    return slot;
  }

  /** Gives each volume on the roster a slot, and drops those of absent volumes that have another slot or left the roster. */
  track({ members, seen }: Roster): void {
    const isOf = (slot: Slot, id: string): boolean => slot.id === id && !slot.isPlaceless;
    for (const slot of this.#slots.filter((each) => each.isPlaceless)) {
      const isNeeded = members.includes(slot.id!) && !this.#slots.some((each) => isOf(each, slot.id!));
      if (!isNeeded) this.delete(slot);
    }
    for (const id of members) {
      if (!this.#slots.some((slot) => slot.id === id)) this.add(absentSlot(id, seen[id]?.dir));
    }
  }

  /** Frees the other slots of a volume that was opened in `slot`. */
  moved(slot: Slot): void {
    for (const other of this.#slots.filter((each) => each !== slot && each.id === slot.id)) {
      if (other.isPlaceless || !other.isConfigured) this.delete(other);
      else other.id = undefined;
    }
  }
}
