import type { Kind } from './volume.ts';

/**
 * The types of records in the log of a volume. The numbers are on disk: they never change and are never reused.
 *
 * A version that does not know a type neither enters such a record into its index nor drops it: compaction moves it. So a
 * new type that ends an earlier record takes effect only for versions that know it: one from before `unnote` finds removed
 * notes again while their segments exist. Such a type must not be relied on for data that an older version may
 * open.
 */
export const RecordType = {
  /** A piece of a larger object. Id: BLAKE3 of the payload. */
  chunk: 1,
  /** A whole object that fits one chunk. Id: its address, which is BLAKE3 of the payload. Meta: the media type. */
  object: 2,
  /** A stretch of a manifest. Id: BLAKE3 of the payload. */
  page: 3,
  /** An object of several chunks. Id: its address. Meta: the media type. */
  manifest: 4,
  /** Pins the object with this address: it does not expire. */
  pin: 5,
  unpin: 6,
  /** The object with this address is removed. */
  remove: 7,
  /** Contents that protect each other. Id: the stripe's. Payload: see stripe.ts. */
  stripe: 8,
  /** The stripe has ended. The same id and payload. */
  unstripe: 9,
  /** A note of a layer above. The last one with an id is current. */
  note: 10,
  /** A parity shard of a stripe. Id: BLAKE3 of the payload. */
  parity: 11,
  /** The note with this id is removed. */
  unnote: 12,
} as const;

/** Records that are found by the hash of their payload. */
export function isContent(type: number): boolean {
  return (
    type === RecordType.chunk || type === RecordType.object || type === RecordType.page || type === RecordType.parity
  );
}

/** Records that stand for an object as a whole. */
export function isObject(type: number): boolean {
  return type === RecordType.object || type === RecordType.manifest;
}

/** Records that state that an earlier record is no longer valid. */
export const isEnd = (type: number): boolean =>
  type === RecordType.remove || type === RecordType.unstripe || type === RecordType.unnote;

/** Records that end an earlier one. They can be dropped when no segment has a superseded record of their id. */
export const isTombstone = (type: number): boolean => isEnd(type) || type === RecordType.unpin;

/** Records that hold stored bytes, not a decision about them. */
export const takesRoom = (type: number): boolean => isContent(type) || isObject(type);

/** Whether a look-up of this kind finds records of this type. */
export function isOfKind(type: number, kind: Kind): boolean {
  if (kind === 'content') return isContent(type);
  if (kind === 'object') return isObject(type);
  return type === (kind === 'note' ? RecordType.note : RecordType.stripe);
}
