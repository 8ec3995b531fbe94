/**
 * The format of `wrap` results: one byte for the form, then the data that `unwrap` needs.
 *
 *   aes-256-gcm   01 | nonce (12) | ciphertext | tag (16)          the key itself, a counted nonce
 *   x-wing        02 | X-Wing ciphertext (1120) | ciphertext | tag (16)
 *   derived       03 | salt (32) | ciphertext | tag (16)           a key derived in a token, for this salt only
 *   data key      04 | length (2) | wrapped data key | ciphertext | tag (16)    a data key wrapped by a cloud KMS
 *
 * The additional data of AES-GCM is `ron-kms/wrap/v1\n`, the first byte, and the caller's `aad`. In 02 to 04 the key is
 * used once, so the nonce is zero.
 * Contract: an envelope that was not made by this key with this `aad` fails with `validation`, and the error does not
 * reveal the reason.
 * Bound: the limits of backend.ts; 64 KiB take about 30 us.
 */
import { createCipheriv, createDecipheriv, createSecretKey, hkdfSync, type KeyObject } from 'node:crypto';
import { cannotUnwrap } from '../backend/backend.ts';
import { X_WING_CIPHERTEXT_BYTES, xWingDecapsulate, xWingEncapsulate, type XWingPrivate } from './x-wing.ts';

export const NONCE_BYTES = 12;
export const TAG_BYTES = 16;
export const SALT_BYTES = 32;
const CIPHER = 'aes-256-gcm';
const KEY_BYTES = 32;
const NONCE_OF_SINGLE_USE = new Uint8Array(NONCE_BYTES);
const CONTEXT = Buffer.from('ron-kms/wrap/v1\n');

/** The first byte of an envelope. */
export const FORM = { counted: 1, x_wing: 2, derived: 3, data_key: 4 } as const;
export type Form = (typeof FORM)[keyof typeof FORM];

/** Bytes between the first byte of an envelope and its ciphertext. */
const PREFIX_BYTES = { 1: NONCE_BYTES, 2: X_WING_CIPHERTEXT_BYTES, 3: SALT_BYTES } as const;
const LENGTH_BYTES = 2;

export interface Envelope {
  /** Nonce, X-Wing ciphertext, or salt. */
  readonly prefix: Uint8Array;
  /** Includes the tag. */
  readonly ciphertext: Uint8Array;
}

/** Splits an envelope of this form, or throws `validation`. */
export function splitEnvelope(form: Form, wrapped: Uint8Array): Envelope {
  if (wrapped[0] !== form) throw cannotUnwrap();
  const from = form === FORM.data_key ? 1 + LENGTH_BYTES : 1;
  const prefix_bytes = form === FORM.data_key ? ((wrapped[1] ?? 0) << 8) | (wrapped[2] ?? 0) : PREFIX_BYTES[form];
  const to = from + prefix_bytes;
  if (wrapped.length < to + TAG_BYTES) throw cannotUnwrap();
  return { prefix: wrapped.subarray(from, to), ciphertext: wrapped.subarray(to) };
}

export function joinEnvelope(form: Form, prefix: Uint8Array, ciphertext: Uint8Array): Uint8Array {
  const length = form === FORM.data_key ? Uint8Array.of(prefix.length >> 8, prefix.length & 0xff) : new Uint8Array(0);
  return Buffer.concat([Uint8Array.of(form), length, prefix, ciphertext]);
}

/** The additional data, which binds an envelope to its form and to the caller's `aad`. */
export function boundData(form: Form, aad: Uint8Array): Uint8Array {
  return Buffer.concat([CONTEXT, Uint8Array.of(form), aad]);
}

export function sealCounted(key: KeyObject, nonce: Uint8Array, plaintext: Uint8Array, aad: Uint8Array): Uint8Array {
  const ciphertext = gcmSeal(key, nonce, plaintext, boundData(FORM.counted, aad));
  return joinEnvelope(FORM.counted, nonce, ciphertext);
}

export function openCounted(key: KeyObject, wrapped: Uint8Array, aad: Uint8Array): Uint8Array {
  const { prefix, ciphertext } = splitEnvelope(FORM.counted, wrapped);
  return gcmOpen(key, prefix, ciphertext, boundData(FORM.counted, aad));
}

export function sealXWing(publicKey: Uint8Array, plaintext: Uint8Array, aad: Uint8Array): Uint8Array {
  const { shared, ciphertext } = xWingEncapsulate(publicKey);
  const sealed = gcmSeal(singleUseKey(shared), NONCE_OF_SINGLE_USE, plaintext, boundData(FORM.x_wing, aad));
  return joinEnvelope(FORM.x_wing, ciphertext, sealed);
}

export function openXWing(key: XWingPrivate, wrapped: Uint8Array, aad: Uint8Array): Uint8Array {
  const { prefix, ciphertext } = splitEnvelope(FORM.x_wing, wrapped);
  return gcmOpen(singleUseKey(decapsulated(key, prefix)), NONCE_OF_SINGLE_USE, ciphertext, boundData(FORM.x_wing, aad));
}

/** A form whose key is used once and can be recovered from its prefix. */
export type SingleUse = typeof FORM.derived | typeof FORM.data_key;

/** Seals with a key that was made for this prefix only. Zeroes the key. */
export function sealOnce(
  form: SingleUse,
  secret: Uint8Array,
  prefix: Uint8Array,
  plaintext: Uint8Array,
  aad: Uint8Array,
): Uint8Array {
  const sealed = gcmSeal(singleUseKey(secret), NONCE_OF_SINGLE_USE, plaintext, boundData(form, aad));
  return joinEnvelope(form, prefix, sealed);
}

/** Zeroes the key. */
export function openOnce(form: SingleUse, secret: Uint8Array, ciphertext: Uint8Array, aad: Uint8Array): Uint8Array {
  return gcmOpen(singleUseKey(secret), NONCE_OF_SINGLE_USE, ciphertext, boundData(form, aad));
}

export function gcmSeal(key: KeyObject, nonce: Uint8Array, plaintext: Uint8Array, aad: Uint8Array): Uint8Array {
  const cipher = createCipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES }).setAAD(aad);
  return Buffer.concat([cipher.update(plaintext), cipher.final(), cipher.getAuthTag()]);
}

/** Throws `validation` if the tag does not verify, and then discards the plaintext. */
export function gcmOpen(key: KeyObject, nonce: Uint8Array, sealed: Uint8Array, aad: Uint8Array): Uint8Array {
  const tag_at = sealed.length - TAG_BYTES;
  if (tag_at < 0) throw cannotUnwrap();
  const decipher = createDecipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES }).setAAD(aad);
  decipher.setAuthTag(sealed.subarray(tag_at));
  const plaintext = decipher.update(sealed.subarray(0, tag_at));
  try {
    decipher.final();
  } catch {
    plaintext.fill(0);
    throw cannotUnwrap();
  }
  return plaintext;
}

function decapsulated(key: XWingPrivate, ciphertext: Uint8Array): Uint8Array {
  try {
    return xWingDecapsulate(key, ciphertext);
  } catch {
    // The curve rejects the point, so no sender with the public key made it.
    throw cannotUnwrap();
  }
}

/** Zeroes `secret`. */
function singleUseKey(secret: Uint8Array): KeyObject {
  const bytes = new Uint8Array(hkdfSync('sha256', secret, new Uint8Array(0), CONTEXT, KEY_BYTES));
  const key = createSecretKey(bytes);
  bytes.fill(0);
  secret.fill(0);
  return key;
}
