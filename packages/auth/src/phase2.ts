/**
 * Phase 2: what a capability restricts and only the body shows.
 *
 * Promise: hand it the body as it is read, and the first refusal comes before anything was done with the byte that broke
 * the ceiling. A refusal sticks. `settle` refuses until everything has been shown, so forgetting a step fails closed.
 * Bound: counters and at most one running hash per algorithm. Cancellation: drop the object.
 *
 *   update(chunk)* -> end() -> facts({...})* -> settle() -> side effects
 */
import { createHash } from 'node:crypto';
import { assert } from '@ron/kernel';
import type { BodyAlgorithm, BodyCaveat, FactCaveat } from './caveats.ts';
import { factRefusal, tooManyBytes, wrongBody } from './check.ts';
import type { Facts } from './check.ts';
import { forbidden } from './verdict.ts';
import type { Refusal } from './verdict.ts';

export interface BodyHasher {
  update(bytes: Uint8Array): void;
  /** Lower-case hex. Called once. */
  digestHex(): string;
}

/** How to hash, by algorithm. A body whose algorithm is missing here never matches. */
export type BodyHashers = { readonly [algorithm in BodyAlgorithm]?: () => BodyHasher };

export interface Phase2 {
  /** False when `update` and `end` have nothing to do and may be left out. */
  readonly needsBody: boolean;
  /** The next bytes of the body, decoded, in order. */
  update(bytes: Uint8Array): Refusal | undefined;
  /** The body is complete. */
  end(): Refusal | undefined;
  /** What the body says that the request acts on. Call it once for each item of a batch. */
  facts(facts: Facts): Refusal | undefined;
  /** The last word before side effects: a refusal unless all that was left to check has been checked and held. */
  settle(): Refusal | undefined;
}

/** Phase 2 of a capability that leaves nothing to check. Shared: it has no state. */
export const NOTHING_LEFT: Phase2 = Object.freeze({
  needsBody: false,
  update: () => undefined,
  end: () => undefined,
  facts: () => undefined,
  settle: () => undefined,
});

export const NODE_HASHERS: BodyHashers = {
  sha256: () => {
    const hash = createHash('sha256');
    return { update: (bytes) => void hash.update(bytes), digestHex: () => hash.digest('hex') };
  },
};

export interface BodyCheckInit {
  /** Undefined when no caveat bounds the body. */
  body_bytes_max: number | undefined;
  bodies: readonly BodyCaveat[];
  /** The caveats whose fact the route states later. */
  facts: readonly FactCaveat[];
  hashers: BodyHashers;
}

export class BodyCheck implements Phase2 {
  readonly needsBody: boolean;
  readonly #init: BodyCheckInit;
  readonly #running = new Map<BodyAlgorithm, BodyHasher>();
  #bytes = 0;
  #ended = false;
  #factsStated = false;
  #refusal: Refusal | undefined;

  constructor(init: BodyCheckInit) {
    this.#init = init;
    this.needsBody = init.body_bytes_max !== undefined || init.bodies.length > 0;
    for (const { algorithm } of init.bodies) {
      const make = init.hashers[algorithm];
      if (make !== undefined) this.#running.set(algorithm, make());
    }
  }

  update(bytes: Uint8Array): Refusal | undefined {
    assert(!this.#ended, 'the body had ended');
    this.#bytes += bytes.length;
    const { body_bytes_max } = this.#init;
    if (body_bytes_max !== undefined && this.#bytes > body_bytes_max) this.#refusal ??= tooManyBytes(body_bytes_max);
    if (this.#refusal === undefined) for (const hasher of this.#running.values()) hasher.update(bytes);
    return this.#refusal;
  }

  end(): Refusal | undefined {
    if (this.#ended) return this.#refusal;
    this.#ended = true;
    if (this.#refusal !== undefined) return this.#refusal;
    const found = new Map([...this.#running].map(([algorithm, hasher]) => [algorithm, hasher.digestHex()]));
    if (this.#init.bodies.some(({ algorithm, hex }) => found.get(algorithm) !== hex)) this.#refusal = wrongBody();
    return this.#refusal;
  }

  facts(facts: Facts): Refusal | undefined {
    this.#factsStated = true;
    for (const caveat of this.#init.facts) this.#refusal ??= factRefusal(caveat, facts[caveat.key]);
    return this.#refusal;
  }

  settle(): Refusal | undefined {
    if (this.needsBody && !this.#ended) {
      this.#refusal ??= forbidden('capability restricts the body, and the body was not read to its end');
    }
    const [unstated] = this.#init.facts;
    if (unstated !== undefined && !this.#factsStated) this.#refusal ??= factRefusal(unstated, undefined);
    return this.#refusal;
  }
}
