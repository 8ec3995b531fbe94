/**
 * The layout of a stripe: k contents, m parity shards over them, and the volume of each.
 *
 *     0          1   2   3   4
 *     | form (3) | k | m | 0 | then for each shard: id (32) | bytes (4) | id of its volume (16)
 *
 * A stripe is found by its own id, which is the hash of the ids of its shards, and by each of them. The previous version
 * wrote form 2, with names of volumes (length (1), name) in place of ids: it is read, and the planner rewrites it.
 * Form 1 used another erasure code. It is no longer read: such a stripe protects nothing, and the planner ends it.
 */
import { blake3 } from '@napi-rs/blake-hash';
import { formatVolumeId, legacyVolumeId, volumeIdBytes } from './superblock.ts';

/** Numbers on disk: they never change and are never reused. */
const Form = { retired: 1, named: 2, current: 3 } as const;
const HEADER_BYTES = 4;
const ID_BYTES = 32;
const SIZE_BYTES = 4;
const VOLUME_BYTES = 16;

export interface StripeShard {
  readonly id: Uint8Array;
  /** Without the padding to the length of the longest shard. */
  readonly bytes: number;
  /** The id of the volume that it was put to. */
  readonly home: string;
}

export interface StripeLayout {
  readonly data_shards: number;
  /** Data first, then parity. */
  readonly shards: readonly StripeShard[];
  /** Read from a record of the previous version, which has to be rewritten. */
  readonly isNamed?: true;
}

export const stripeId = (shards: readonly Pick<StripeShard, 'id'>[]): Buffer =>
  blake3(Buffer.concat(shards.map((shard) => shard.id)));

export function encodeStripe({ data_shards, shards }: StripeLayout): Buffer {
  const parts: Uint8Array[] = [Buffer.from([Form.current, data_shards, shards.length - data_shards, 0])];
  for (const { id, bytes, home } of shards) {
    const size = Buffer.alloc(SIZE_BYTES);
    size.writeUInt32LE(bytes, 0);
    parts.push(id, size, volumeIdBytes(home));
  }
  return Buffer.concat(parts);
}

/** Undefined when the bytes are not a stripe, or of a form that this version does not read. */
export function decodeStripe(payload: Uint8Array): StripeLayout | undefined {
  const bytes = Buffer.from(payload.buffer, payload.byteOffset, payload.length);
  const [form, data_shards, parity_shards] = bytes;
  if (bytes.length < HEADER_BYTES || (form !== Form.current && form !== Form.named)) return undefined;
  const homeAt = form === Form.current ? volumeAt : namedAt;
  const shards: StripeShard[] = [];
  let at = HEADER_BYTES;
  while (shards.length < data_shards! + parity_shards!) {
    const size_at = at + ID_BYTES;
    const home = homeAt(bytes, size_at + SIZE_BYTES);
    if (home === undefined) return undefined;
    const id = Uint8Array.from(bytes.subarray(at, size_at));
    shards.push({ id, bytes: bytes.readUInt32LE(size_at), home: home.id });
    at = home.end;
  }
  const layout = { data_shards: data_shards!, shards };
  return form === Form.current ? layout : { ...layout, isNamed: true };
}

interface Home {
  readonly id: string;
  readonly end: number;
}

function volumeAt(bytes: Buffer, at: number): Home | undefined {
  const end = at + VOLUME_BYTES;
  return end > bytes.length ? undefined : { id: formatVolumeId(bytes.subarray(at, end)), end };
}

function namedAt(bytes: Buffer, at: number): Home | undefined {
  const end = at + 1 + (bytes[at] ?? 0);
  return end > bytes.length ? undefined : { id: legacyVolumeId(bytes.toString('utf8', at + 1, end)), end };
}

export const isRetiredStripe = (payload: Uint8Array): boolean => payload[0] === Form.retired;

/** The ids that a stripe is found by. */
export const shardIdsOf = (payload: Uint8Array): readonly Uint8Array[] =>
  decodeStripe(payload)?.shards.map((shard) => shard.id) ?? [];
