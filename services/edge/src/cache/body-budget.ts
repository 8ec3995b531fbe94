/**
 * Memory for bodies that cannot go to disk: in amnesia, and while the disk fails or has no room.
 *
 * Contract: the claims in use stay within `bytes_max`. A claim ends with `release`, or `HELD_MS` after `finished`: by then every
 * request that could read the body has passed its deadline.
 * Bound: `bytes_max`. Overflow: `busy`; `payload_too_large` for one body above `bytes_max`.
 */
import { RonError, sched } from '@ron/kernel';

const HELD_MS = 10_000;

/** The memory of one body. */
export interface BodyClaim {
  /** Sets the claim to `bytes`. Throws `busy` if they are too many now, `payload_too_large` if they never fit. */
  resize(bytes: number): void;
  /** The body is complete: the claim ends by itself from now on. */
  finished(): void;
  /** Idempotent. */
  release(): void;
}

interface Claim {
  bytes: number;
  until_ms: number;
}

export class BodyBudget {
  readonly bytes_max: number;
  readonly #claims = new Set<Claim>();
  #bytes = 0;

  constructor(bytes_max: number) {
    this.bytes_max = bytes_max;
  }

  get bytes(): number {
    return this.#bytes;
  }

  claim(): BodyClaim {
    const claim = { bytes: 0, until_ms: Infinity };
    this.#claims.add(claim);
    return {
      resize: (bytes) => this.#resize(claim, bytes),
      finished: () => (claim.until_ms = sched.now_ms() + HELD_MS),
      release: () => this.#release(claim),
    };
  }

  #resize(claim: Claim, bytes: number): void {
    if (bytes > this.bytes_max) {
      throw new RonError('payload_too_large', `an asset in memory has at most ${this.bytes_max} bytes`);
    }
    const more_bytes = bytes - claim.bytes;
    if (this.#bytes + more_bytes > this.bytes_max) this.#releaseOld();
    // [edge I-9] Refused instead of held.
    if (this.#bytes + more_bytes > this.bytes_max) {
      throw new RonError('busy', 'too many bytes of fills are in memory', { retry_after_ms: 1000 });
    }
    claim.bytes = bytes;
    this.#bytes += more_bytes;
  }

  #releaseOld(): void {
    const now_ms = sched.now_ms();
    for (const claim of this.#claims) if (claim.until_ms <= now_ms) this.#release(claim);
  }

  #release(claim: Claim): void {
    if (this.#claims.delete(claim)) this.#bytes -= claim.bytes;
  }
}
