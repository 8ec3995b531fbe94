/**
 * The last step of every put: writes the record that makes an object visible.
 *
 * Contract: the object is durable and visible when the put resolves, or with `durability: 'later'` after the next sync. An
 * address that differs from `expected`, or that `onAddress` refuses, leaves nothing. An intact and durable object is
 * rewritten only to renew its lease or to change its media type: the last stated type wins, and a put without one keeps the
 * stored type.
 * Bound: one record. Cancellation: by the signal; a put that is cancelled while it waits was not written.
 */
import { blake3 } from '@napi-rs/blake-hash';
import { RonError } from '@ron/kernel';
import { formatAddress, type Address } from '@ron/proto';
import { storedMeta } from '../volume/verify-record.ts';
import { chunkKey, type Leases } from './leases.ts';
import { RecordType } from '../volume/record-types.ts';
import type { NewRecord, Volume } from '../volume/volume.ts';

export const MEDIA_TYPE_DEFAULT = 'application/octet-stream';

export interface Written {
  readonly address: Address;
  readonly size: number;
  /** The object was already stored, intact and durable. */
  readonly existed: boolean;
}

export interface FinishInit {
  /** The address that the client states. A mismatch is refused and leaves nothing. */
  expected?: Address | undefined;
  media_type?: string | undefined;
  /** Called with the address before the object becomes visible. Throws to refuse the object. */
  onAddress?: ((address: Address) => void) | undefined;
  /**
   * With `later` an object of one record is acknowledged when it is written; it becomes visible with the next sync of the
   * volume, and a crash before that loses it. An object of several chunks is always durable. Default `now`.
   */
  durability?: 'now' | 'later' | undefined;
  /** Records that become durable in one step with the object, such as a note that refers to it. */
  with?: readonly NewRecord[] | undefined;
  /** Whether the removal of the stored object is being written: then the object is written again, after it. */
  isLeaving?: ((address: Address) => boolean) | undefined;
}

/** The destination of a put. */
export interface ObjectPlace {
  volume: Volume;
  leases: Leases;
  /** Whether the lease of an object with this put time must be renewed. Default: never. */
  isStale?: ((put_s: number) => boolean) | undefined;
  /** Called when the record of an object was written: it is new, renewed or retyped. Must not throw. */
  onStored?: ((id: Uint8Array) => void) | undefined;
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

/** Returns whether the object was stored before. The lease keeps it from expiring between the check and the answer. */
export async function putObject(
  { volume, leases, isStale, onStored, onRetyped }: ObjectPlace,
  record: Omit<NewRecord, 'meta' | 'replaces'>,
  { media_type, durability, with: more = [], isLeaving }: FinishInit,
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
    // The object may have been removed while the types were compared.
    const isStaying = isLeaving?.(formatAddress(record.id)) !== true;
    const isHere = stored.isIntact && isStaying && volume.isDurable('object', record.id);
    if (isHere && !isRenewed && !isRetyped) {
      if (more.length > 0) await volume.put(more, signal, durability);
      return true;
    }
    await volume.put([{ ...record, meta, ...(isRetyped && { replaces: true }) }, ...more], signal, durability);
    if (isRetyped) onRetyped?.(record.id);
    onStored?.(record.id);
    return isHere;
  } finally {
    leases.release(key);
  }
}

export function requireAllowed(address: Address, { expected, onAddress }: FinishInit): Address {
  onAddress?.(address);
  if (expected === undefined || expected === address) return address;
  throw new RonError('address_mismatch', 'the bytes do not match the address', {
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
