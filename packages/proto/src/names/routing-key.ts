/**
 * The keys of objects and names in the DHT. The caller hashes the input with SHA-256; this package has no hash functions.
 *
 *     providerKey(sha256(providerKeyInput(address)))     // a multihash
 *     nameKey(sha256(nameKeyInput(key, label)))          // the bytes of /ron-name/<base32>
 */
import { addressBytes, type Address } from '../address.ts';
import { toBase32 } from './base32.ts';

export const PROVIDER_KEY_DOMAIN = 'ron/index/v1';
export const NAME_KEY_DOMAIN = 'ron/name/v1';
export const NAME_KEY_PREFIX = '/ron-name/';

const SHA256_BYTES = 32;
/** `sha2-256`, 32 bytes. */
const MULTIHASH_HEADER = Uint8Array.of(0x12, SHA256_BYTES);
const text = new TextEncoder();

/** The domain and the 32 bytes of the address. */
export function providerKeyInput(address: Address): Uint8Array<ArrayBuffer> {
  return joinBytes(text.encode(PROVIDER_KEY_DOMAIN), addressBytes(address));
}

/** The multihash under which providers of the object are stored. */
export function providerKey(sha256: Uint8Array): Uint8Array<ArrayBuffer> {
  return joinBytes(MULTIHASH_HEADER, sha256);
}

/** The domain, the 32 bytes of the key and the label. */
export function nameKeyInput(key: string, label: string): Uint8Array<ArrayBuffer> {
  return joinBytes(text.encode(NAME_KEY_DOMAIN), Uint8Array.fromHex(key), text.encode(label));
}

/** The key under which the record of the name is stored. */
export function nameKey(sha256: Uint8Array): Uint8Array<ArrayBuffer> {
  return text.encode(NAME_KEY_PREFIX + toBase32(sha256));
}

export function joinBytes(...parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const joined = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}
