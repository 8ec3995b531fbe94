/**
 * Root keys in memory, and the audience keys that are derived from them.
 *
 * Contract: an audience key is HKDF-SHA256 of a root secret with the audience in its info, so the holder of one audience
 * key cannot mint for other services. Secrets are zeroed when they leave the ring and are never printed. `generation`
 * changes whenever a key that was handed out becomes invalid.
 * Bound: `RING_KEYS_MAX` keys times the number of services.
 */
import { hkdfSync, timingSafeEqual } from 'node:crypto';
import { inspect } from 'node:util';
import type { Service } from '@ron/proto';
import { assert, RonError, touch } from '@ron/kernel';

export const SECRET_BYTES = 32;
export const KEY_ID_PATTERN = /^[a-z0-9]{1,32}$/;
/** The current key and older ones whose capabilities have not yet expired. */
export const RING_KEYS_MAX = 8;

export interface RingKey {
  readonly key_id: string;
  readonly secret: Uint8Array;
}

/** Either root secrets, for all audiences, or the keys of one audience only. The first key is the current one. */
export interface KeySet {
  readonly audience: Service | 'root';
  readonly keys: readonly RingKey[];
}

/** A key and its id. Prints only the id. */
export class AudienceKey {
  readonly key_id: string;
  readonly #key: Uint8Array;

  constructor(key_id: string, key: Uint8Array) {
    this.key_id = key_id;
    this.#key = key;
  }

  /** Belongs to its source, which zeroes it: use it at once, do not store it. */
  get key(): Uint8Array {
    return this.#key;
  }

  toJSON(): string {
    return `AudienceKey(${this.key_id})`;
  }

  [inspect.custom](): string {
    return this.toJSON();
  }
}

/** The key with which one service checks its capabilities. The caller owns the result. */
export function deriveAudienceKey(rootSecret: Uint8Array, audience: Service): Uint8Array<ArrayBuffer> {
  const info = `ron/auth/v1/audience/${audience}`;
  return new Uint8Array(hkdfSync('sha256', rootSecret, new Uint8Array(0), info, SECRET_BYTES));
}

/** Whether bytes can be a live audience key. A zeroed key is public, so any client could sign with it. */
export function isUsableKey(key: Uint8Array): boolean {
  return key.length >= SECRET_BYTES && key.some((byte) => byte !== 0);
}

export class KeyRing {
  #set: KeySet;
  readonly #derived = new Map<string, Uint8Array>();
  #generation = 0;

  /** Takes over the secrets: the ring zeroes them. */
  constructor(set: KeySet) {
    checkSet(set);
    this.#set = set;
  }

  get generation(): number {
    return this.#generation;
  }

  get keyIds(): readonly string[] {
    return this.#set.keys.map((key) => key.key_id);
  }

  /** The key of an audience under a key id; undefined if the ring does not have it. */
  key(audience: Service, key_id: string): Uint8Array | undefined {
    touch(this);
    const found = this.#set.keys.find((key) => key.key_id === key_id);
    if (found === undefined) return undefined;
    if (this.#set.audience !== 'root') return this.#set.audience === audience ? found.secret : undefined;
    const name = `${key_id}/${audience}`;
    const derived = this.#derived.get(name) ?? deriveAudienceKey(found.secret, audience);
    this.#derived.set(name, derived);
    return derived;
  }

  current(audience: Service): AudienceKey {
    const key_id = this.#set.keys[0]?.key_id;
    if (key_id === undefined) throw new RonError('closed', 'the key source is closed');
    return new AudienceKey(key_id, this.#require(audience, key_id));
  }

  /** Copies of one audience's keys, for that service. The caller owns them. */
  audienceSet(audience: Service): KeySet {
    const keys = this.keyIds.map((key_id) => ({ key_id, secret: Uint8Array.from(this.#require(audience, key_id)) }));
    return { audience, keys };
  }

  /** A copy of one key, which the caller owns; undefined if the ring does not have it. */
  copy(audience: Service, key_id: string): Uint8Array | undefined {
    const key = this.key(audience, key_id);
    return key === undefined ? undefined : Uint8Array.from(key);
  }

  /** Whether the key of this id has these bytes. */
  holds(audience: Service, key_id: string, secret: Uint8Array): boolean {
    const key = this.key(audience, key_id);
    return key !== undefined && key.length === secret.length && timingSafeEqual(key, secret);
  }

  /** Replaces the set and takes ownership of it. Keys that are in both sets stay usable throughout. */
  adopt(next: KeySet): void {
    touch(this);
    checkSet(next);
    const kept = next.audience === this.#set.audience ? this.#set.keys : [];
    const keys = next.keys.map((key) => kept.find((old) => sameKey(old, key)) ?? key);
    const gone = this.#set.keys.filter((old) => !keys.includes(old));
    for (const key of next.keys) if (!keys.includes(key)) key.secret.fill(0);
    this.#set = { audience: next.audience, keys };
    if (gone.length > 0) this.#forget(gone);
  }

  /** Zeroes the keys that `isRetired` names. The ring may be empty afterwards. */
  retire(isRetired: (key_id: string) => boolean): void {
    touch(this);
    const gone = this.#set.keys.filter(({ key_id }) => isRetired(key_id));
    if (gone.length === 0) return;
    this.#set = { audience: this.#set.audience, keys: this.#set.keys.filter((key) => !gone.includes(key)) };
    this.#forget(gone);
  }

  /** Zeroes everything. The ring is empty afterwards. */
  wipe(): void {
    touch(this);
    const gone = this.#set.keys;
    this.#set = { audience: this.#set.audience, keys: [] };
    this.#forget(gone);
  }

  #require(audience: Service, key_id: string): Uint8Array {
    const key = this.key(audience, key_id);
    if (key !== undefined) return key;
    throw new RonError('forbidden', `this source has keys of ${this.#set.audience} only, not of ${audience}`);
  }

  /** The generation changes first: a check that holds a key across an await detects the change and does not trust the key. */
  #forget(gone: readonly RingKey[]): void {
    this.#generation += 1;
    for (const { key_id, secret } of gone) {
      secret.fill(0);
      for (const [name, derived] of this.#derived) {
        if (!name.startsWith(`${key_id}/`)) continue;
        derived.fill(0);
        this.#derived.delete(name);
      }
    }
  }

  toJSON(): string {
    return `KeyRing(${this.#set.audience}: ${this.keyIds.join(', ') || 'closed'})`;
  }

  [inspect.custom](): string {
    return this.toJSON();
  }
}

function checkSet(set: KeySet): void {
  assert(set.keys.length > 0 && set.keys.length <= RING_KEYS_MAX, `a key set has 1 to ${RING_KEYS_MAX} keys`);
  assert(new Set(set.keys.map((key) => key.key_id)).size === set.keys.length, 'key ids differ');
  assert(
    set.keys.every((key) => key.secret.length === SECRET_BYTES),
    `a secret has ${SECRET_BYTES} bytes`,
  );
}

function sameKey(left: RingKey, right: RingKey): boolean {
  return left.key_id === right.key_id && Buffer.compare(left.secret, right.secret) === 0;
}
