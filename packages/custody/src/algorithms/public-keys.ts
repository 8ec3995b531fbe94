/**
 * Public keys in their exported form, and the verification of signatures.
 *
 * Contract: a signature verifies here exactly if OpenSSL accepts it. A malformed public key, or one of another algorithm,
 * fails with `validation` and is never reported as an invalid signature.
 * Bound: `CACHED_KEYS_MAX` parsed keys per algorithm. Overflow: the least recently used key is evicted.
 */
import { createPublicKey, verify, type KeyObject } from 'node:crypto';
import { RonError } from '@ron/kernel';
import { isSpkiOfXWing } from './x-wing.ts';
import type { Alg } from './algorithms.ts';
import type { PublicPart } from '../backend/backend.ts';

/** Per algorithm. */
const CACHED_KEYS_MAX = 2048;
/** The longest key, of ML-DSA-87, has 3488 characters. */
const PUBKEY_CHARS_MAX = 4096;
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;

/** Least recently used first. */
const parsed = new Map<Alg, Map<string, KeyObject>>();

/** Whether `signature` is a signature over `message` by this key. */
export function verifyWith(part: PublicPart, message: Uint8Array, signature: Uint8Array): boolean {
  return verify(null, message, publicKeyOf(part), signature);
}

/** Throws `validation` unless it is a public key of its algorithm in the canonical encoding. */
export function requirePublicPart(part: PublicPart): void {
  if (part.alg === 'x-wing') {
    if (!isSpkiOfXWing(decode(part))) throw notAKey(part);
  } else {
    publicKeyOf(part);
  }
}

export function spkiOf(key: KeyObject): string {
  return key.export({ type: 'spki', format: 'der' }).toString('base64');
}

/** Returns the same object for the same key while it is cached. */
export function publicKeyOf(part: PublicPart): KeyObject {
  // One map per algorithm: a key that was accepted for one algorithm must not be accepted for another. A joined map key
  // would have to be hashed on every call, which costs a fifth of the verification.
  const keys = parsed.get(part.alg) ?? new Map<string, KeyObject>();
  const known = keys.get(part.pubkey_b64);
  const key = known ?? parse(part);
  if (known !== undefined) keys.delete(part.pubkey_b64);
  keys.set(part.pubkey_b64, key);
  parsed.set(part.alg, keys);
  if (keys.size > CACHED_KEYS_MAX) keys.delete(keys.keys().next().value as string);
  return key;
}

function parse(part: PublicPart): KeyObject {
  const der = decode(part);
  let key: KeyObject;
  try {
    key = createPublicKey({ key: der, format: 'der', type: 'spki' });
  } catch (error) {
    throw notAKey(part, error);
  }
  if (key.asymmetricKeyType !== part.alg || spkiOf(key) !== part.pubkey_b64) throw notAKey(part);
  return key;
}

function decode(part: PublicPart): Buffer {
  if (part.pubkey_b64.length > PUBKEY_CHARS_MAX || !BASE64.test(part.pubkey_b64)) throw notAKey(part);
  return Buffer.from(part.pubkey_b64, 'base64');
}

function notAKey(part: PublicPart, cause?: unknown): RonError {
  const message = `pubkey_b64 is not a public key of ${part.alg} (DER SubjectPublicKeyInfo, base64)`;
  return new RonError('validation', message, cause === undefined ? {} : { cause });
}
