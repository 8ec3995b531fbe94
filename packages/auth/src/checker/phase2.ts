/**
 * Phase 2: the restrictions of a capability that only the body can satisfy.
 *
 * Contract: the caller passes the body as it is read, and a refusal is returned before the byte that exceeds the limit
 * is used. A refusal is final. `settle` refuses until all steps were taken, so a forgotten step fails closed.
 * `body` and `bytes` caveats apply to the content-decoded body: transfer coding removed, `Content-Encoding` decoded. The
 * same capability therefore accepts a body sent plain, chunked or compressed. A request without a body has the hash of
 * zero bytes.
 * Bound: counters and at most one running hash per algorithm (`b3`: 64 KiB).
 *
 *   update(chunk)* -> end() -> facts({...})* -> settle() -> side effects
 */
import { createHash } from 'node:crypto';
import { assert } from '@ron/kernel';
import type { AccessFacts, AccessRefusal, Phase2 } from '@ron/proto';
import { Blake3Hasher } from '@ron/simd/blake3-hasher';
import type { BodyAlgorithm, BodyCaveat, FactCaveat } from '../capability/caveats.ts';
import { factRefusal, tooManyBytes, wrongBody } from '../check.ts';
import { forbidden } from '../verdict.ts';

interface BodyHasher {
  update(bytes: Uint8Array): void;
  /** Lower-case hex. Called once. */
  digestHex(): string;
}

/** Phase 2 of a capability without remaining checks. Shared: it has no state. */
export const NOTHING_LEFT: Phase2 = Object.freeze({
  needsBody: false,
  update: () => undefined,
  end: () => undefined,
  facts: () => undefined,
  settle: () => undefined,
});

/** Every algorithm that a `body` caveat can name; each service checks all of them. */
const HASHERS: Readonly<Record<BodyAlgorithm, () => BodyHasher>> = {
  sha256: () => {
    const hash = createHash('sha256');
    return { update: (bytes) => void hash.update(bytes), digestHex: () => hash.digest('hex') };
  },
  b3: () => {
    const hasher = new Blake3Hasher();
    return { update: (bytes) => hasher.update(bytes), digestHex: () => hasher.digest().toHex() };
  },
};

export interface BodyCheckInit {
  /** Undefined if no caveat limits the body. */
  body_bytes_max: number | undefined;
  bodies: readonly BodyCaveat[];
  /** The caveats whose facts the route states later. */
  facts: readonly FactCaveat[];
}

export class BodyCheck implements Phase2 {
  readonly needsBody: boolean;
  readonly #init: BodyCheckInit;
  readonly #running = new Map<BodyAlgorithm, BodyHasher>();
  #bytes = 0;
  #ended = false;
  #factsStated = false;
  #refusal: AccessRefusal | undefined;

  constructor(init: BodyCheckInit) {
    this.#init = init;
    this.needsBody = init.body_bytes_max !== undefined || init.bodies.length > 0;
    for (const { algorithm } of init.bodies) {
      if (!this.#running.has(algorithm)) this.#running.set(algorithm, HASHERS[algorithm]());
    }
  }

  update(bytes: Uint8Array): AccessRefusal | undefined {
    assert(!this.#ended, 'update is not called after the end of the body');
    this.#bytes += bytes.length;
    const { body_bytes_max } = this.#init;
    if (body_bytes_max !== undefined && this.#bytes > body_bytes_max) this.#refusal ??= tooManyBytes(body_bytes_max);
    if (this.#refusal === undefined) for (const hasher of this.#running.values()) hasher.update(bytes);
    return this.#refusal;
  }

  end(): AccessRefusal | undefined {
    if (this.#ended) return this.#refusal;
    this.#ended = true;
    if (this.#refusal !== undefined) return this.#refusal;
    const found = new Map([...this.#running].map(([algorithm, hasher]) => [algorithm, hasher.digestHex()]));
    if (this.#init.bodies.some(({ algorithm, hex }) => found.get(algorithm) !== hex)) this.#refusal = wrongBody();
    return this.#refusal;
  }

  facts(facts: AccessFacts): AccessRefusal | undefined {
    this.#factsStated = true;
    for (const caveat of this.#init.facts) this.#refusal ??= factRefusal(caveat, facts[caveat.key]);
    return this.#refusal;
  }

  settle(): AccessRefusal | undefined {
    if (this.needsBody && !this.#ended) {
      this.#refusal ??= forbidden('capability restricts the body, and the body was not read to its end');
    }
    const [unstated] = this.#init.facts;
    if (unstated !== undefined && !this.#factsStated) this.#refusal ??= factRefusal(unstated, undefined);
    return this.#refusal;
  }
}
