/**
 * The keys that this node trusts, by prefix of labels. Immutable: a change makes a new list, which replaces the old one.
 *
 * Contract: a prefix covers whole segments, and the longest one decides. The empty prefix is the node's own key.
 * Bound: `TRUST_MAX` prefixes. Overflow: `storage_full`.
 */
import { RonError } from '@ron/kernel';
import { prefixesOf } from '@ron/proto';
import type { TrustedKey } from '../store/index-store.ts';

export const TRUST_MAX = 1024;

export class TrustList {
  static readonly EMPTY = new TrustList(new Map());
  readonly #keys: ReadonlyMap<string, string>;
  readonly #trusted: ReadonlySet<string>;

  private constructor(keys: ReadonlyMap<string, string>) {
    this.#keys = keys;
    this.#trusted = new Set(keys.values());
  }

  static of(trusted: readonly TrustedKey[]): TrustList {
    return new TrustList(new Map(trusted.map(({ prefix, key }) => [prefix, key])));
  }

  /** The key for a bare label. */
  keyFor(label: string): string | undefined {
    for (const prefix of prefixesOf(label)) {
      const key = this.#keys.get(prefix);
      if (key !== undefined) return key;
    }
    return undefined;
  }

  isTrusted(key: string): boolean {
    return this.#trusted.has(key);
  }

  get(prefix: string): string | undefined {
    return this.#keys.get(prefix);
  }

  /** In order of the prefixes. */
  list(): TrustedKey[] {
    const all = [...this.#keys].map(([prefix, key]) => ({ prefix, key }));
    return all.toSorted((left, right) => (left.prefix < right.prefix ? -1 : 1));
  }

  /** `key` undefined removes the prefix. */
  with(prefix: string, key: string | undefined): TrustList {
    const keys = new Map(this.#keys);
    if (key === undefined) keys.delete(prefix);
    else keys.set(prefix, key);
    if (keys.size > TRUST_MAX) {
      throw new RonError('storage_full', `the trust list has ${TRUST_MAX} prefixes: remove one first`, {
        reason: 'quota',
      });
    }
    return new TrustList(keys);
  }
}
