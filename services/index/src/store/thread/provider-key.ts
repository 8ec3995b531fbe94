/**
 * Keys of provider records in the datastore of kad-dht: `/dht/provider/<multihash in base32>/<peer id>`.
 *
 * Contract: keys of sha2-256 multihashes are stored as 32 bytes and an interned peer id; any other key is stored as text.
 */

/** kad-dht appends `/provider` to its prefix, which is `/dht` unless it is configured. */
const PROVIDERS = '/dht/provider';
const KEY = /^\/dht\/provider\/([a-z2-7]{55})(?:\/([^/]*))?$/;
/** sha2-256, 32 bytes. */
const MULTIHASH_PREFIX = Buffer.from([0x12, 0x20]);
const HASH_BYTES = 32;
const ALPHABET = 'abcdefghijklmnopqrstuvwxyz234567';

export interface ProviderKey {
  /** The key without the peer. */
  readonly object: string;
  readonly hash: Uint8Array;
  /** Undefined: all peers. */
  readonly peer: string | undefined;
}

/** Undefined if the key is not one of a provider. */
export function parseProviderKey(key: string): ProviderKey | undefined {
  const [, digits, peer] = KEY.exec(key) ?? [];
  if (digits === undefined) return undefined;
  const bytes = fromBase32(digits);
  if (bytes === undefined || !MULTIHASH_PREFIX.equals(bytes.subarray(0, 2))) return undefined;
  const object = key.slice(0, PROVIDERS.length + 1 + digits.length);
  return { object, hash: bytes.subarray(2), peer: peer === '' ? undefined : peer };
}

export function formatProviderKey(hash: Uint8Array, peer: string): string {
  return `${PROVIDERS}/${toBase32(Buffer.concat([MULTIHASH_PREFIX, hash]))}/${peer}`;
}

/** Whether keys of providers begin with this prefix. */
export const coversProviders = (prefix: string): boolean => `${PROVIDERS}/`.startsWith(prefix);

function toBase32(bytes: Uint8Array): string {
  let text = '';
  let bits = 0;
  let held = 0;
  for (const byte of bytes) {
    held = (held << 8) | byte;
    bits += 8;
    for (; bits >= 5; bits -= 5) text += ALPHABET[(held >>> (bits - 5)) & 31];
    held &= (1 << bits) - 1;
  }
  return bits === 0 ? text : text + ALPHABET[(held << (5 - bits)) & 31];
}

/** Undefined unless the unused bits are zero: each value has one spelling. */
function fromBase32(text: string): Buffer | undefined {
  const bytes = Buffer.alloc(MULTIHASH_PREFIX.length + HASH_BYTES);
  let at = 0;
  let bits = 0;
  let held = 0;
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index);
    // a to z are 0 to 25, 2 to 7 are 26 to 31.
    held = (held << 5) | (code >= 97 ? code - 97 : code - 24);
    bits += 5;
    if (bits < 8) continue;
    bits -= 8;
    bytes[at++] = held >>> bits;
    held &= (1 << bits) - 1;
  }
  return held === 0 ? bytes : undefined;
}
