/**
 * Versions of targets: whether an answer was computed before its data changed.
 *
 * Contract: a lookup adds each target to its stamp before it reads the data of that target. A change bumps the version of its
 * targets after it is committed and before it is acknowledged. So a stamp that is current covers every acknowledged change.
 * Bound: `SLOTS` counters, which targets share by their hash. Two targets with one slot can only cause a superfluous lookup.
 *
 *     const stamp = versions.stamp();
 *     stamp.add(target);
 *     const row = await store.object(address);
 *     if (stamp.isCurrent) cache.set(target, row);
 */
import { touch } from '@ron/kernel';

const SLOTS = 2 ** 16;

export class Versions {
  readonly #slots = new Uint32Array(SLOTS);
  #epoch = 0;

  stamp(): Stamp {
    return new Stamp(this);
  }

  /** Outdates every stamp that contains the target. */
  bump(target: string): void {
    touch(this);
    this.#slots[slotOf(target)]! += 1;
  }

  /** Outdates every stamp. */
  bumpAll(): void {
    touch(this);
    this.#epoch += 1;
  }

  get epoch(): number {
    touch(this);
    return this.#epoch;
  }

  at(slot: number): number {
    touch(this);
    return this.#slots[slot]!;
  }
}

export class Stamp {
  readonly #versions: Versions;
  readonly #epoch: number;
  /** Slot and version in turn: one pair for each target. */
  readonly #seen: number[] = [];

  constructor(versions: Versions) {
    this.#versions = versions;
    this.#epoch = versions.epoch;
  }

  add(target: string): void {
    const slot = slotOf(target);
    this.#seen.push(slot, this.#versions.at(slot));
  }

  get isCurrent(): boolean {
    const versions = this.#versions;
    if (versions.epoch !== this.#epoch) return false;
    const seen = this.#seen;
    for (let at = 0; at < seen.length; at += 2) if (versions.at(seen[at]!) !== seen[at + 1]!) return false;
    return true;
  }
}

/** FNV-1a. */
function slotOf(target: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < target.length; at += 1) hash = Math.imul(hash ^ target.charCodeAt(at), 0x01000193);
  return (hash ^ (hash >>> 16)) & (SLOTS - 1);
}
