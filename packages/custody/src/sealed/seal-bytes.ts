/**
 * Seals bytes: salt (32) | ciphertext | tag (16), under a key derived from the master key and the salt (HKDF-SHA256).
 *
 * No imports of the project, so that a thread that seals starts fast and needs little memory. See sealer.ts for the contract.
 */
import { createCipheriv, createSecretKey, hkdfSync, type KeyObject } from 'node:crypto';

export const SEAL_SALT_BYTES = 32;
const KEY_BYTES = 32;
const TAG_BYTES = 16;
const INFO = Buffer.from('ron-sealed/v1\n');
/** Each key is used once. */
const ZERO_NONCE = new Uint8Array(12);

/** `salt` is random and used once. */
export function sealWith(master: KeyObject, salt: Uint8Array, context: Uint8Array, plaintext: Uint8Array): Uint8Array {
  const cipher = createCipheriv('aes-256-gcm', sealKey(master, salt), ZERO_NONCE, { authTagLength: TAG_BYTES });
  cipher.setAAD(context);
  return Buffer.concat([salt, cipher.update(plaintext), cipher.final(), cipher.getAuthTag()]);
}

export function sealKey(master: KeyObject | Uint8Array, salt: Uint8Array): KeyObject {
  const bytes = new Uint8Array(hkdfSync('sha256', master, salt, INFO, KEY_BYTES));
  const key = createSecretKey(bytes);
  bytes.fill(0);
  return key;
}
