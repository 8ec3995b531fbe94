/**
 * The keys of the DHT, and the positions of keys and peers in its key space.
 *
 * Contract: positions are those of stock kad-dht: the sha2-256 hash of the key bytes, or of the multihash of a peer id.
 * Two positions are compared by their XOR distance to a third one.
 * Bound: the positions of `POSITIONS_MAX` peers are kept. Overflow: the oldest one goes and is computed again when needed.
 */
import { hash } from 'node:crypto';
import { addressBytes, type Address } from '@ron/proto';
import { base32 } from 'multiformats/bases/base32';
import { base58btc } from 'multiformats/bases/base58';

/** The namespace of name records: kad-dht chooses the validator by it. */
export const NAME_NAMESPACE = 'ron-name';
export const POSITION_BYTES = 32;

const PROVIDER_DOMAIN = Buffer.from('ron/index/v1');
const NAME_DOMAIN = Buffer.from('ron/name/v1');
/** The multihash prefix: sha2-256, 32 bytes. */
const SHA2_256 = Buffer.from([0x12, 0x20]);
/** A peer id is a multihash of at most 42 bytes; base58 of it has fewer characters than this. */
const PEER_ID_CHARS_MAX = 64;
const POSITIONS_MAX = 4096;

/** The key of an address: the sha2-256 multihash of `"ron/index/v1"` and the address bytes. */
export function providerKey(address: Address): Uint8Array {
  return Buffer.concat([SHA2_256, sha256(Buffer.concat([PROVIDER_DOMAIN, addressBytes(address)]))]);
}

/** The key of a name: `/ron-name/` and base32 of sha2-256 of `"ron/name/v1"`, the key of the signer and the label. */
export function nameKey(signer_hex: string, label: string): Uint8Array {
  const digest = sha256(Buffer.concat([NAME_DOMAIN, Buffer.from(signer_hex, 'hex'), Buffer.from(label)]));
  return Buffer.from(`/${NAME_NAMESPACE}/${base32.baseEncode(digest)}`);
}

export function positionOfKey(key: Uint8Array): Uint8Array {
  return sha256(key);
}

/** The position of an address: the order of the provider sweep. */
export function positionOfAddress(address: Address): Uint8Array {
  return sha256(providerKey(address));
}

/** Positions of peers that were computed last: decoding base58 would be half of the work of a lookup. */
const known = new Map<string, Uint8Array>();

/** Undefined if `id` is not a base58btc peer id. */
export function positionOfPeer(id: string): Uint8Array | undefined {
  const position = known.get(id) ?? computePosition(id);
  if (position === undefined) return undefined;
  if (known.size >= POSITIONS_MAX && !known.has(id)) known.delete(known.keys().next().value!);
  known.set(id, position);
  return position;
}

function computePosition(id: string): Uint8Array | undefined {
  if (id.length === 0 || id.length > PEER_ID_CHARS_MAX) return undefined;
  try {
    return sha256(base58btc.baseDecode(id));
  } catch {
    return undefined;
  }
}

/** Negative if `a` is closer to `target` than `b`. */
export function compareDistance(target: Uint8Array, a: Uint8Array, b: Uint8Array): number {
  for (let at = 0; at < POSITION_BYTES; at += 1) {
    const difference = (a[at]! ^ target[at]!) - (b[at]! ^ target[at]!);
    if (difference !== 0) return difference;
  }
  return 0;
}

/** How many leading bits two positions share. */
export function commonPrefixBits(a: Uint8Array, b: Uint8Array): number {
  for (let at = 0; at < POSITION_BYTES; at += 1) {
    const difference = a[at]! ^ b[at]!;
    if (difference !== 0) return at * 8 + Math.clz32(difference) - 24;
  }
  return POSITION_BYTES * 8;
}

function sha256(bytes: Uint8Array): Uint8Array {
  return hash('sha256', bytes, 'buffer');
}
