/**
 * The last step of every put: the record under which an object is known.
 *
 * Promise: the object is durable and visible when it resolves (unless `durability` is `later`), under an address that the sender's claim and `onAddress`
 * agree with. One that is here already, whole and durable, is not written again unless it is about to expire.
 * Bound: one record. Cancellation: by the signal; a put that is cancelled while it waits was not written.
 */
import { blake3 } from '@napi-rs/blake-hash';
import { RonError } from '@ron/kernel';
import { formatAddress, type Address } from '@ron/proto';
import { isIntact } from './intact.ts';
import { chunkKey, type Leases } from './leases.ts';
import { RecordType } from './record-types.ts';
import type { NewRecord, Volume } from './volume.ts';

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
  const record = { type: RecordType.object, id, payload, meta: metaOf(init) };
  const existed = await putObject(place, record, signal, init.durability);
  return { address, size: payload.length, existed };
}

/** Whether the object was here. The lease keeps it from expiring between the look and the answer. */
export async function putObject(
  { volume, leases, isStale }: ObjectPlace,
  record: NewRecord,
  signal: AbortSignal,
  durability: 'now' | 'later' = 'now',
): Promise<boolean> {
  const key = chunkKey(record.id);
  leases.take(key);
  try {
    const existed = await isIntact(volume, 'object', record.id, signal);
    const isRenewed = existed && isStale !== undefined && isStale((await volume.putTime_s('object', record.id)) ?? 0);
    if (!existed || isRenewed) await volume.put([record], signal, durability);
    return existed;
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

export const metaOf = (init: FinishInit): Buffer => Buffer.from(init.media_type ?? MEDIA_TYPE_DEFAULT, 'utf8');
