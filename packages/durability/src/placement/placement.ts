/**
 * Places records on volumes: weighted rendezvous hashing over failure domains.
 *
 * Contract: the same volumes give the same result in every process, without coordination. A volume gets records in proportion
 * to its weight. When a volume is added or removed, only records that it gets or had move, one copy of each. The first `n`
 * volumes of an order are in `n` different domains, if there are as many.
 * Bound: a few operations for each volume.
 *
 * Each volume gets a score for the id, from the id of the record and its own; the highest come first. A score of `-weight /
 * ln(u)` with `u` uniform in (0, 1) makes a volume of twice the weight win twice as often.
 */
import { blake3 } from '@napi-rs/blake-hash';

export interface Place {
  /** Never changes: it decides which records the volume gets. */
  readonly id: string;
  /** Volumes of one domain fail together. */
  readonly domain: string;
  /** Its share of the records relative to other volumes, usually its size. Above 0. */
  readonly weight: number;
}

interface Seeded<P> {
  readonly place: P;
  readonly domain: number;
  readonly seed_low: number;
  readonly seed_high: number;
}

export class Placement<P extends Place = Place> {
  readonly places: readonly P[];
  readonly domains: number;
  readonly #seeded: readonly Seeded<P>[];

  constructor(places: readonly P[]) {
    const domains = new Map<string, number>();
    this.places = places;
    this.#seeded = places.map((place) => {
      const seed = blake3(Buffer.from(place.id, 'utf8'));
      if (!domains.has(place.domain)) domains.set(place.domain, domains.size);
      return {
        place,
        domain: domains.get(place.domain)!,
        seed_low: seed.readInt32LE(0),
        seed_high: seed.readInt32LE(4),
      };
    });
    this.domains = domains.size;
  }

  /** Every volume, the best for `id` first: one of each domain, then a second one of each, and so on. */
  order(id: Uint8Array): P[] {
    const drawn = this.#seeded.map((seeded) => ({ seeded, score: draw(id, seeded) }));
    drawn.sort((a, b) => b.score - a.score);
    const seen = Array.from<number>({ length: this.domains }).fill(0);
    const rounds: P[][] = [];
    for (const { seeded } of drawn) {
      const round = seen[seeded.domain]!++;
      (rounds[round] ??= []).push(seeded.place);
    }
    return rounds.flat();
  }

  /** The `count` best, or all if there are fewer. */
  choose(id: Uint8Array, count: number): P[] {
    return this.order(id).slice(0, count);
  }
}

/**
 * The least number that one domain must hold if `count` items, each on its own volume, are spread as evenly as possible.
 * `count` if there are fewer volumes.
 */
export function mostInDomain(places: readonly Place[], count: number): number {
  const sizes = new Map<string, number>();
  for (const { domain } of places) sizes.set(domain, (sizes.get(domain) ?? 0) + 1);
  for (let most = 1; most < count; most++) {
    let fit = 0;
    for (const size of sizes.values()) fit += Math.min(size, most);
    if (fit >= count) return most;
  }
  return count;
}

function draw(id: Uint8Array, { seed_low, seed_high, place }: Seeded<Place>): number {
  const low = mix(wordAt(id, 0) ^ seed_low, wordAt(id, 8));
  const high = mix(wordAt(id, 4) ^ seed_high, low);
  // 52 bits plus half a step: never 0, never 1.
  const uniform = ((high >>> 6) * 2 ** 26 + (low >>> 6) + 0.5) / 2 ** 52;
  return -place.weight / Math.log(uniform);
}

/** Mixes two words so that every bit of the result depends on every input bit. */
function mix(a: number, b: number): number {
  let x = Math.imul(a ^ (a >>> 16), 0x85ebca6b) ^ b;
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  x = Math.imul(x ^ (x >>> 16), 0x27d4eb2f);
  return x ^ (x >>> 15);
}

const wordAt = (id: Uint8Array, at: number): number =>
  id[at]! | (id[at + 1]! << 8) | (id[at + 2]! << 16) | (id[at + 3]! << 24);
