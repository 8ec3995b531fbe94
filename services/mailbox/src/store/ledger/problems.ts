/**
 * The list of differences that break the ledger.
 *
 * Contract: the same log has the same list and the same hash, at a start and in a proof. Bound: `LISTED_MAX` problems are
 * listed; the others are counted and hashed.
 */
import { createHash } from 'node:crypto';

const LISTED_MAX = 64;

export interface LedgerProblem {
  /** For the operator. */
  readonly text: string;
  readonly items: readonly string[];
  /** Problems that are not in the list. */
  readonly more: number;
  /** Names exactly this problem: SHA-256, hex. */
  readonly sha256: string;
}

export class Problems {
  #items: string[] = [];
  #more = 0;
  readonly #hash = createHash('sha256');

  add(item: string): void {
    if (this.#items.length < LISTED_MAX) this.#items.push(item);
    else this.#more += 1;
    this.#hash.update(`${item}\n`);
  }

  /** Undefined if there is none. */
  report(): LedgerProblem | undefined {
    if (this.#items.length === 0) return undefined;
    const rest = this.#more === 0 ? '' : `; and ${this.#more} more`;
    const sha256 = this.#hash.copy().digest('hex');
    return { text: this.#items.join('; ') + rest, items: this.#items, more: this.#more, sha256 };
  }
}
