/**
 * Revocation by epoch: a capability carries the epoch of its subject at issue, and is good while that epoch is not below
 * the subject's floor.
 *
 * Promise: floors only rise, so a revocation that was seen is never undone by a late or repeated message.
 * Bound: `subjects_max` subjects. Overflow: a new subject is refused with `overflow`, never ignored; `raiseAll` then
 * revokes for everyone and forgets the floors that it covers. Cancellation: nothing waits.
 */
import { assert, RonError, touch } from '@ron/kernel';

export interface RevocationEpochs {
  /** The lowest epoch still good for a subject. Called on every request: it must not wait. Throws when it cannot say. */
  floor(subject: string): number;
}

export const NOTHING_REVOKED: RevocationEpochs = { floor: () => 0 };

export class EpochTable implements RevocationEpochs {
  readonly #subjects_max: number;
  readonly #floors = new Map<string, number>();
  #floorOfAll = 0;

  constructor(init: { /** Default 10 000. */ subjects_max?: number } = {}) {
    this.#subjects_max = init.subjects_max ?? 10_000;
  }

  floor(subject: string): number {
    touch(this);
    return Math.max(this.#floorOfAll, this.#floors.get(subject) ?? 0);
  }

  /** Refuses what was issued to `subject` below `epoch`. */
  raise(subject: string, epoch: number): void {
    touch(this);
    assert(Number.isSafeInteger(epoch) && epoch >= 0, `epoch ${epoch} is a whole number from 0`);
    if (epoch <= this.floor(subject)) return;
    if (!this.#floors.has(subject) && this.#floors.size >= this.#subjects_max) {
      throw new RonError('overflow', `${this.#subjects_max} subjects have revocations; raise the epoch of all instead`);
    }
    this.#floors.set(subject, epoch);
  }

  /** Refuses everything that was issued below `epoch`. */
  raiseAll(epoch: number): void {
    touch(this);
    assert(Number.isSafeInteger(epoch) && epoch >= 0, `epoch ${epoch} is a whole number from 0`);
    this.#floorOfAll = Math.max(this.#floorOfAll, epoch);
    for (const [subject, floor] of this.#floors) if (floor <= this.#floorOfAll) this.#floors.delete(subject);
  }
}
