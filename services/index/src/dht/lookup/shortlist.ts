/**
 * The candidates of one lookup, ordered by their distance to its target.
 *
 * Contract: a peer is in the list at most once, and `next` returns each peer at most once, the closest first. A lookup is
 * exhausted when the `width` closest candidates that neither failed nor stall have answered.
 * A peer could name closer peers that do not exist: once `UNANSWERED_MAX` of the peers that it named do not answer,
 * the others that it named come last. Peers of the own routing table (hop 1) never do.
 * Bound: `SHORTLIST_MAX` candidates. Overflow: the farthest candidate that was not queried goes, unless it is of the own
 * routing table; if the new one is farther, it is not added.
 */
import { compareDistance, positionOfPeer } from '../keys.ts';
import type { PeerRef } from '../peers.ts';

export const SHORTLIST_MAX = 256;
/** The replication parameter `k` of Kademlia: a record lies at this many peers. */
export const CLOSEST = 20;

/** Peers named by one peer that are queried before those of others, while they do not answer. */
const UNANSWERED_MAX = 4;

export interface Candidate {
  readonly peer: PeerRef;
  readonly position: Uint8Array;
  /** 1 for peers of the own routing table, one more than that of the peer that named it otherwise. */
  readonly hop: number;
  /** The candidate that named it; undefined for peers of the own routing table. */
  reporter: Candidate | undefined;
  /** `stalled`: its answer is overdue, but still used. */
  state: 'waiting' | 'querying' | 'stalled' | 'answered' | 'failed';
}

const isLive = ({ state }: Candidate): boolean => state !== 'failed' && state !== 'stalled';

export class Shortlist {
  readonly #target: Uint8Array;
  readonly #width: number;
  readonly #self: string;
  readonly #byId = new Map<string, Candidate>();
  /** The closest first. */
  #candidates: Candidate[] = [];

  /** `self` is never a candidate. */
  constructor(target: Uint8Array, self: string, width: number = CLOSEST) {
    this.#target = target;
    this.#width = width;
    this.#self = self;
  }

  get size(): number {
    return this.#candidates.length;
  }

  /** Returns whether the peer is new and closer than all others. Ignores this node and malformed ids. */
  add(peer: PeerRef, reporter?: Candidate): boolean {
    const known = this.#byId.get(peer.id);
    if (known?.reporter !== undefined && this.#unanswered(reporter) < this.#unanswered(known.reporter))
      known.reporter = reporter;
    if (known !== undefined || peer.id === this.#self) return false;
    const position = positionOfPeer(peer.id);
    if (position === undefined) return false;
    const at = this.#rankOf(position);
    if (this.#candidates.length >= SHORTLIST_MAX && !this.#makeRoom(at)) return false;
    const hop = (reporter?.hop ?? 0) + 1;
    const candidate: Candidate = { peer, position, hop, reporter, state: 'waiting' };
    this.#byId.set(peer.id, candidate);
    this.#candidates.splice(at, 0, candidate);
    return at === 0;
  }

  /** The closest candidate that still has to be queried; those of reporters whose peers do not answer come last. */
  next(): Candidate | undefined {
    return this.#next((candidate) => this.#unanswered(candidate.reporter) < UNANSWERED_MAX) ?? this.#next(() => true);
  }

  /** The closest peer of the own routing table that still has to be queried: until `width` closer peers have answered. */
  nextOwn(): Candidate | undefined {
    let answered = 0;
    for (const candidate of this.#candidates) {
      if (candidate.state === 'waiting' && candidate.reporter === undefined) return candidate;
      if (candidate.state === 'answered') answered += 1;
      if (answered === this.#width) return undefined;
    }
    return undefined;
  }

  #next(isPreferred: (candidate: Candidate) => boolean): Candidate | undefined {
    let counted = 0;
    for (const candidate of this.#candidates) {
      if (candidate.state === 'waiting') {
        if (isPreferred(candidate)) return candidate;
      } else if (isLive(candidate)) counted += 1;
      if (counted === this.#width) return undefined;
    }
    return undefined;
  }

  /** How many of the peers that it named were queried and have not answered. */
  #unanswered(reporter: Candidate | undefined): number {
    if (reporter === undefined) return 0;
    let count = 0;
    for (const { reporter: by, state } of this.#candidates)
      if (by === reporter && state !== 'waiting' && state !== 'answered') count += 1;
    return count;
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

  /** Drops the farthest candidate that was named by a peer and not queried, if it is behind `at`. It may be added again. */
  #makeRoom(at: number): boolean {
    const farthest = this.#candidates.findLastIndex(
      ({ state, reporter }) => state === 'waiting' && reporter !== undefined,
    );
    if (farthest < at) return false;
    const [dropped] = this.#candidates.splice(farthest, 1);
    this.#byId.delete(dropped!.peer.id);
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
