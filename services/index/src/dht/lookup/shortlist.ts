/**
 * The candidates of one lookup, ordered by their distance to its target.
 *
 * Contract: a peer is in the list at most once, and `next` returns each peer at most once, the closest first. A lookup is
 * exhausted when the `width` closest candidates that neither failed nor stall have answered.
 * Bound: `SHORTLIST_MAX` candidates. Overflow: the farthest candidate that was not queried goes; if the new one is
 * farther, it is not added.
 */
import { compareDistance, positionOfPeer } from '../keys.ts';
import type { PeerRef } from '../peers.ts';

export const SHORTLIST_MAX = 256;
/** The replication parameter `k` of Kademlia: a record lies at this many peers. */
export const CLOSEST = 20;

export interface Candidate {
  readonly peer: PeerRef;
  readonly position: Uint8Array;
  /** 1 for peers of the own routing table, one more than that of the peer that named it otherwise. */
  readonly hop: number;
  /** `stalled`: its answer is overdue, but still used. */
  state: 'waiting' | 'querying' | 'stalled' | 'answered' | 'failed';
}

const isLive = ({ state }: Candidate): boolean => state !== 'failed' && state !== 'stalled';

export class Shortlist {
  readonly #target: Uint8Array;
  readonly #width: number;
  readonly #byId = new Set<string>();
  /** The closest first. */
  #candidates: Candidate[] = [];

  /** `self` is never a candidate. */
  constructor(target: Uint8Array, self: string, width: number = CLOSEST) {
    this.#target = target;
    this.#width = width;
    this.#byId.add(self);
  }

  get size(): number {
    return this.#candidates.length;
  }

  /** Returns whether the peer is new and closer than all others. Ignores known peers and malformed ids. */
  add(peer: PeerRef, hop: number): boolean {
    if (this.#byId.has(peer.id)) return false;
    const position = positionOfPeer(peer.id);
    if (position === undefined) return false;
    const at = this.#rankOf(position);
    if (this.#candidates.length >= SHORTLIST_MAX && !this.#makeRoom(at)) return false;
    this.#byId.add(peer.id);
    this.#candidates.splice(at, 0, { peer, position, hop, state: 'waiting' });
    return at === 0;
  }

  /** The closest candidate that still has to be queried. */
  next(): Candidate | undefined {
    let counted = 0;
    for (const candidate of this.#candidates) {
      if (candidate.state === 'waiting') return candidate;
      if (isLive(candidate)) counted += 1;
      if (counted === this.#width) return undefined;
    }
    return undefined;
  }

  /** Whether all of the `width` closest candidates have answered, without those that failed or stall. */
  get isExhausted(): boolean {
    return this.next() === undefined && this.closest().every(({ state }) => state === 'answered');
  }

  /** Whether as many peers as store a record have answered. */
  get isAnswered(): boolean {
    const closest = this.closest();
    return closest.length >= this.#width && closest.every(({ state }) => state === 'answered');
  }

  /** The `width` closest candidates that neither failed nor stall, the closest first. */
  closest(): Candidate[] {
    return this.#candidates.filter(isLive).slice(0, this.#width);
  }

  /** All candidates that neither failed nor stall, the closest first. */
  seen(): PeerRef[] {
    return this.#candidates.filter(isLive).map(({ peer }) => peer);
  }

  /** Drops the farthest candidate, which must be behind `at` and not queried. A dropped peer may be added again. */
  #makeRoom(at: number): boolean {
    const last = this.#candidates.at(-1)!;
    if (at >= this.#candidates.length || last.state !== 'waiting') return false;
    this.#candidates.pop();
    this.#byId.delete(last.peer.id);
    return true;
  }

  /** How many candidates are closer than `position`. */
  #rankOf(position: Uint8Array): number {
    let [low, high] = [0, this.#candidates.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (compareDistance(this.#target, this.#candidates[middle]!.position, position) <= 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
