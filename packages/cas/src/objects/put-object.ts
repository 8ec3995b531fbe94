/**
 * The last step of every put: the record under which an object is known.
 *
 * Contract: the object is durable and visible when it resolves, or with `durability: 'later'` once the next sync has
 * returned, under an address that the sender's claim and `onAddress` agree with. An object that is already stored, intact and durable, is written again only
 * when it is about to expire or when the sender states another media type: the last stated media type wins. A put without
 * one keeps the stored type.
 * Bound: one record. Cancellation: by the signal; a put that is cancelled while it waits was not written.
 */
import { blake3 } from '@napi-rs/blake-hash';
import { RonError } from '@ron/kernel';
import { formatAddress, type Address } from '@ron/proto';
import { storedMeta } from '../volume/intact.ts';
import { chunkKey, type Leases } from './leases.ts';
import { RecordType } from '../volume/record-types.ts';
import type { NewRecord, Volume } from '../volume/volume.ts';

export const MEDIA_TYPE_DEFAULT = 'application/octet-stream';

export interface Written {
  readonly address: Address;
  readonly size: number;
  /** It was here before, whole and durable. */
  readonly existed: boolean;
}

export interface FinishInit {
  /** The address that the sender claims. A mismatch is refused and leaves nothing. */
  expected?: Address | undefined;
  media_type?: string | undefined;
  /** Told the address before the object becomes visible; what it throws refuses the object. */
  onAddress?: ((address: Address) => void) | undefined;
  /**
   * With `later` an object of one record is acknowledged when it is written; it becomes visible with the next sync of the
   * volume, and a crash before that loses it. An object of several chunks is always durable. Default `now`.
   */
  durability?: 'now' | 'later' | undefined;
}

/** Where whole objects go. */
export interface ObjectPlace {
  volume: Volume;
  leases: Leases;
  /** Whether an object that was put at this time has to be put again to stay. Default: never. */
  isStale?: ((put_s: number) => boolean) | undefined;
  /** Called when the media type of a stored object has changed, so that caches can evict it. */
  onRetyped?: ((id: Uint8Array) => void) | undefined;
}

/** Stores an object that fits one chunk: one record, one share of a sync. */
export async function putSmall(
  place: ObjectPlace,
  payload: Uint8Array,
  init: FinishInit,
  signal: AbortSignal,
): Promise<Written> {
  const id = blake3(payload);
  const address = requireAllowed(formatAddress(id), init);
  const existed = await putObject(place, { type: RecordType.object, id, payload }, init, signal);
  return { address, size: payload.length, existed };
}

/** Whether the object was here. The lease keeps it from expiring between the look and the answer. */
export async function putObject(
  { volume, leases, isStale, onRetyped }: ObjectPlace,
  record: Omit<NewRecord, 'meta' | 'replaces'>,
  { media_type, durability }: FinishInit,
  signal: AbortSignal,
): Promise<boolean> {
  const key = chunkKey(record.id);
  leases.take(key);
  try {
    const stored = await storedMeta(volume, record.id, signal);
    const stated = media_type === undefined ? undefined : Buffer.from(media_type, 'utf8');
    const meta = stated ?? stored.meta ?? Buffer.from(MEDIA_TYPE_DEFAULT, 'utf8');
    const isRetyped =
      stored.meta !== undefined &&
      stated !== undefined &&
      !(await hasMeta(volume, record.id, stored.meta, stated, signal));
    const isRenewed = isStale !== undefined && isStale((await volume.putTime_s('object', record.id)) ?? 0);
    // It may have gone while the types were compared.
    const isHere = stored.isIntact && volume.isDurable('object', record.id);
    if (isHere && !isRenewed && !isRetyped) return true;
    await volume.put([{ ...record, meta, ...(isRetyped && { replaces: true }) }], signal, durability);
    if (isRetyped) onRetyped?.(record.id);
    return isHere;
  } finally {
    leases.release(key);
  }
}

export function requireAllowed(address: Address, { expected, onAddress }: FinishInit): Address {
  onAddress?.(address);
  if (expected === undefined || expected === address) return address;
  throw new RonError('address_mismatch', 'the bytes do not have the address they were sent to', {
    details: { expected, actual: address },
  });
}

async function hasMeta(
  volume: Volume,
  id: Uint8Array,
  stored: Uint8Array,
  stated: Uint8Array,
  signal: AbortSignal,
): Promise<boolean> {
  if (Buffer.compare(stored, stated) !== 0) return false;
  return (await volume.allHaveMeta?.(id, stated, signal)) ?? true;
}
