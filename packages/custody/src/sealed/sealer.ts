/**
 * Encryption of data at rest, under a 32-byte key from outside or a passphrase (scrypt).
 *
 *   sealed bytes:  salt (32) | ciphertext | tag (16)
 *   key box:       kind | log2 N | r | p | salt (16) | the master key, sealed (80)
 *
 * A random master key seals everything. The key box holds the master key, sealed under the key-encryption key, and states
 * the key derivation in the clear; so the key or passphrase can change without re-encrypting the data. Each sealing derives
 * its own key from the master key and a fresh salt (HKDF-SHA256), so no nonce repeats, even if backups are restored.
 * `context` is bound as additional data.
 * Contract: bytes that were not sealed under this key for this context are refused as a whole. The master key is a platform
 * key object.
 * Bound: scrypt uses at most `SCRYPT_MEMORY_BYTES_MAX`, regardless of the parameters in a file.
 * Cancellation: scrypt runs to its end on the platform's thread pool, and its result is discarded.
 */
import { createSecretKey, hkdfSync, scrypt, type KeyObject } from 'node:crypto';
import { assert, RonError, sched } from '@ron/kernel';
import { gcmOpen, NONCE_BYTES, SALT_BYTES, TAG_BYTES } from '../algorithms/envelope.ts';
import { sealKey, sealWith } from './seal-bytes.ts';

/** Opens a key box. A passphrase is stretched with scrypt; a key must already be random. */
export type Unlock = { readonly kek: Uint8Array } | { readonly passphrase: string; readonly scrypt?: ScryptCost };

export interface ScryptCost {
  /** Default 17: N = 2^17, 128 MiB, about half a second. */
  readonly log2_n: number;
  /** Default 8. */
  readonly r: number;
  /** Default 1. */
  readonly p: number;
}

export const SCRYPT_COST: ScryptCost = { log2_n: 17, r: 8, p: 1 };
export const SCRYPT_MEMORY_BYTES_MAX = 512 * 1024 * 1024;
export const KEK_BYTES = 32;
export const PASSPHRASE_CHARS_MIN = 8;
/** The overhead of sealing. */
export const SEAL_BYTES = SALT_BYTES + TAG_BYTES;
const KDF_HEADER_BYTES = 20;
export const KEY_BOX_BYTES = KDF_HEADER_BYTES + KEK_BYTES + SEAL_BYTES;

const KIND = { kek: 0, scrypt: 1 } as const;
const KDF_SALT_BYTES = 16;
const LOG2_N_MAX = 20;
const R_MAX = 32;
const P_MAX = 16;
const INFO = Buffer.from('ron-sealed/v1\n');
const ZERO_NONCE = new Uint8Array(NONCE_BYTES);

/** Parses a 32-byte key in hex or base64. Errors do not contain the text. */
export function kekFromText(text: string): Uint8Array {
  const trimmed = text.trim();
  const encoding = /^[0-9a-fA-F]{64}$/.test(trimmed) ? 'hex' : 'base64';
  const kek = Buffer.from(trimmed, encoding);
  const isWhole = encoding === 'hex' || /^[A-Za-z0-9+/_-]{43}=?$/.test(trimmed);
  if (!isWhole || kek.length !== KEK_BYTES) {
    throw new RonError(
      'validation',
      'a key-encryption key is 32 random bytes, in hex or base64 (openssl rand -hex 32)',
    );
  }
  return kek;
}

/** Makes a master key, outside of the JavaScript heap. */
export function newMaster(): KeyObject {
  return secretKey(sched.randomBytes(KEK_BYTES));
}

/** Seals a master key in a box that only `unlock` opens, for this context. */
export async function newKeyBox(
  unlock: Unlock,
  context: Uint8Array,
  master: KeyObject,
  signal: AbortSignal,
): Promise<Uint8Array> {
  const kdfHeader = newKdfHeader(unlock);
  const outer = await wrappingKey(unlock, kdfHeader, signal);
  const bytes = master.export();
  const sealed = sealBytes(outer, Buffer.concat([kdfHeader, context]), bytes);
  bytes.fill(0);
  return Buffer.concat([kdfHeader, sealed]);
}

/**
 * Opens a key box. The box is untrusted input: its parameters cannot exceed the limits.
 * Throws `not_ready` if it needs the other kind of secret, and `validation` if it does not open.
 */
export async function openKeyBox(
  unlock: Unlock,
  context: Uint8Array,
  box: Uint8Array,
  signal: AbortSignal,
): Promise<KeyObject> {
  assert(box.length === KEY_BOX_BYTES, 'a key box has its fixed length');
  const kdfHeader = box.subarray(0, KDF_HEADER_BYTES);
  const outer = await wrappingKey(unlock, kdfHeader, signal);
  return secretKey(unsealBytes(outer, Buffer.concat([kdfHeader, context]), box.subarray(KDF_HEADER_BYTES)));
}

/** The parameters that derive the wrapping key from the unlock secret. */
function newKdfHeader(unlock: Unlock): Uint8Array {
  if ('kek' in unlock) return Buffer.concat([Uint8Array.of(KIND.kek, 0, 0, 0), sched.randomBytes(KDF_SALT_BYTES)]);
  const { log2_n, r, p } = unlock.scrypt ?? SCRYPT_COST;
  return Buffer.concat([Uint8Array.of(KIND.scrypt, log2_n, r, p), sched.randomBytes(KDF_SALT_BYTES)]);
}

async function wrappingKey(unlock: Unlock, kdfHeader: Uint8Array, signal: AbortSignal): Promise<KeyObject> {
  const [kind, log2_n = 0, r = 0, p = 0] = kdfHeader;
  const salt = kdfHeader.subarray(KDF_HEADER_BYTES - KDF_SALT_BYTES);
  if (kind !== ('kek' in unlock ? KIND.kek : KIND.scrypt)) {
    const [needed, given] = 'kek' in unlock ? ['passphrase', 'key'] : ['key', 'passphrase'];
    throw new RonError('not_ready', `it was sealed with a ${needed}, but a ${given} was given`);
  }
  const bytes =
    'kek' in unlock ? fromKek(unlock.kek, salt) : await fromPassphrase(unlock.passphrase, salt, log2_n, r, p);
  signal.throwIfAborted();
  return secretKey(bytes);
}

export function sealBytes(master: KeyObject, context: Uint8Array, plaintext: Uint8Array): Uint8Array {
  const salt = sched.randomBytes(SALT_BYTES);
  return sealWith(master, salt, context, plaintext);
}

/** Throws `validation` unless these bytes were sealed under this key for this context. The caller zeroes the result. */
export function unsealBytes(master: KeyObject, context: Uint8Array, sealed: Uint8Array): Uint8Array {
  const salt = sealed.subarray(0, SALT_BYTES);
  return gcmOpen(sealKey(master, salt), ZERO_NONCE, sealed.subarray(SALT_BYTES), context);
}

/** Zeroes the bytes. */
function secretKey(bytes: Uint8Array): KeyObject {
  const key = createSecretKey(bytes);
  bytes.fill(0);
  return key;
}

function fromKek(kek: Uint8Array, salt: Uint8Array): Uint8Array {
  if (kek.length !== KEK_BYTES) throw new RonError('validation', `a key-encryption key has ${KEK_BYTES} bytes`);
  return new Uint8Array(hkdfSync('sha256', kek, salt, INFO, KEK_BYTES));
}

function fromPassphrase(
  passphrase: string,
  salt: Uint8Array,
  log2_n: number,
  r: number,
  p: number,
): Promise<Uint8Array> {
  if (passphrase.length < PASSPHRASE_CHARS_MIN) {
    throw new RonError('validation', `a passphrase must have at least ${PASSPHRASE_CHARS_MIN} characters`);
  }
  const N = 2 ** log2_n;
  const isAllowed = log2_n >= 1 && log2_n <= LOG2_N_MAX && r >= 1 && r <= R_MAX && p >= 1 && p <= P_MAX;
  if (!isAllowed || 128 * N * r >= SCRYPT_MEMORY_BYTES_MAX) {
    throw new RonError(
      'not_ready',
      'its scrypt parameters exceed the limits: it is damaged, or another program made it',
    );
  }
  const parked = sched.park<Uint8Array>('scrypt');
  const options = { N, r, p, maxmem: SCRYPT_MEMORY_BYTES_MAX };
  scrypt(passphrase.normalize('NFKC'), salt, KEK_BYTES, options, (error, key) => {
    if (error === null) parked.wake(key);
    else parked.fail(error);
  });
  return parked.promise;
}
