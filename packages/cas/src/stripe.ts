/**
 * What a stripe is made of: k contents, m parity shards over them, and where each of them lies.
 *
 *     0         1   2   3   4
 *     | code    | k | m | 0 | then for each shard: id (32) | bytes (4) | length of the name (1) | name of its volume
 *
 * A stripe is found by its own id, which is the hash of the ids of its shards, and by each of them.
 */
import { blake3 } from '@napi-rs/blake-hash';
import type { CodeName } from '@ron/simd';

/** By what its parity is made. The numbers are on disk: they never change. */
const CODES: readonly (CodeName | undefined)[] = [undefined, 'cauchy', 'sums'];
const HEADER_BYTES = 4;
const ID_BYTES = 32;
const SHARD_BYTES = ID_BYTES + 5;
const NAME_BYTES_MAX = 255;

export interface StripeShard {
  readonly id: Uint8Array;
  /** Without what fills it up to the longest one. */
  readonly bytes: number;
  /** The name of the volume that it was put to. */
  readonly home: string;
}

export interface StripeLayout {
  readonly code: CodeName;
  readonly data_shards: number;
  /** Data first, then parity. */
  readonly shards: readonly StripeShard[];
}

export const stripeId = (shards: readonly Pick<StripeShard, 'id'>[]): Buffer =>
  blake3(Buffer.concat(shards.map((shard) => shard.id)));

export function encodeStripe({ code, data_shards, shards }: StripeLayout): Buffer {
  const parts: Uint8Array[] = [Buffer.from([CODES.indexOf(code), data_shards, shards.length - data_shards, 0])];
  for (const { id, bytes, home } of shards) {
    const name = Buffer.from(home, 'utf8');
    if (name.length > NAME_BYTES_MAX) throw new RangeError(`the name of a volume has at most ${NAME_BYTES_MAX} bytes`);
    const size = Buffer.alloc(SHARD_BYTES - ID_BYTES);
    size.writeUInt32LE(bytes, 0);
    size.writeUInt8(name.length, 4);
    parts.push(id, size, name);
  }
  return Buffer.concat(parts);
}

/** Undefined when it is none, or of a later version. */
export function decodeStripe(payload: Uint8Array): StripeLayout | undefined {
  const bytes = Buffer.from(payload.buffer, payload.byteOffset, payload.length);
  const code = CODES[bytes[0] ?? 0];
  if (bytes.length < HEADER_BYTES || code === undefined) return undefined;
  const data_shards = bytes[1]!;
  const total = data_shards + bytes[2]!;
  const shards: StripeShard[] = [];
  let at = HEADER_BYTES;
  while (shards.length < total) {
    if (at + SHARD_BYTES > bytes.length) return undefined;
    const name_at = at + SHARD_BYTES;
    const end = name_at + bytes[at + ID_BYTES + 4]!;
    if (end > bytes.length) return undefined;
    shards.push({
      id: Uint8Array.from(bytes.subarray(at, at + ID_BYTES)),
      bytes: bytes.readUInt32LE(at + ID_BYTES),
      home: bytes.toString('utf8', name_at, end),
    });
    at = end;
  }
  return { code, data_shards, shards };
}

/** The ids that a stripe is found by. */
export const shardIdsOf = (payload: Uint8Array): readonly Uint8Array[] =>
  decodeStripe(payload)?.shards.map((shard) => shard.id) ?? [];
