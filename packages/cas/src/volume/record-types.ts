import type { Kind } from './volume.ts';

/** What a record in a volume's log is. The numbers are on disk: they never change and are never used again. */
export const RecordType = {
  /** A piece of a larger object. Id: BLAKE3 of the payload. */
  chunk: 1,
  /** A whole object that fits one chunk. Id: its address, which is BLAKE3 of the payload. Meta: the media type. */
  object: 2,
  /** A stretch of a manifest. Id: BLAKE3 of the payload. */
  page: 3,
  /** An object of several chunks. Id: its address. Meta: the media type. */
  manifest: 4,
  /** Keeps the object with this address when what is not pinned is reclaimed. */
  pin: 5,
  unpin: 6,
  /** The object with this address is gone. */
  remove: 7,
  /** Contents that protect each other. Id: the stripe's. Payload: see stripe.ts. */
  stripe: 8,
  /** They do so no longer. The same id and payload. */
  unstripe: 9,
  /** A note that the user of the volume keeps there; the last one with an id counts. */
  note: 10,
  /** What lost contents of a stripe are made from. Id: BLAKE3 of the payload. */
  parity: 11,
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

/** Records that say that something which was here before is not here any more. */
export const isEnd = (type: number): boolean => type === RecordType.remove || type === RecordType.unstripe;

/** Records that end an earlier one. They can go when no superseded record of their id is left in any segment. */
export const isTombstone = (type: number): boolean => isEnd(type) || type === RecordType.unpin;

/** Records that hold stored bytes, not a decision about them. */
export const takesRoom = (type: number): boolean => isContent(type) || isObject(type);

/** Whether a record of this type is what is looked for by that kind. */
export function isOfKind(type: number, kind: Kind): boolean {
  if (kind === 'content') return isContent(type);
  if (kind === 'object') return isObject(type);
  return type === (kind === 'note' ? RecordType.note : RecordType.stripe);
}
