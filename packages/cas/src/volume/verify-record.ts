/** Decides, for all readers, whether a record has the requested id and intact bytes. */
import { blake3 } from '@napi-rs/blake-hash';
import { isRonError } from '@ron/kernel';
import type { LogRecord, ReadInit, SegmentLog } from '@ron/log';
import type { Place } from '../index/entry.ts';
import { onDisk } from '../index/record-places.ts';
import { isContent, isOfKind } from './record-types.ts';
import { shardIdsOf } from './stripe.ts';
import type { Kind, Volume } from './volume.ts';

/**
 * Whether a record is stored durably and reads back correctly. Only then may a put be answered with "exists": the client
 * has the good bytes now, and may not have them when the damage is found.
 */
export async function isIntact(volume: Volume, kind: Kind, id: Uint8Array, signal: AbortSignal): Promise<boolean> {
  if (!volume.isDurable(kind, id)) return false;
  if (volume.getNow?.(kind, id) !== undefined) return true;
  try {
    // The record may have been removed while it was read.
    return (await volume.get(kind, id, signal)) !== undefined && volume.isDurable(kind, id);
  } catch (error) {
    if (isRonError(error, 'integrity') || isRonError(error, 'not_ready')) return false;
    throw error;
  }
}

/** Whether a place lies inside the durable part of its segment. */
export function isInLog({ files }: SegmentLog, place: Place): boolean {
  return files.has(place.segment) && place.offset + onDisk(place) <= files.durableBytesOf(place.segment);
}

/**
 * How a record of a kind is read. Content is verified by its hash in `isRecord`. Of anything else the log verifies the
 * checksum, which covers the size in a manifest and the media type of an object.
 */
export const readInitOf = (kind: Kind): ReadInit => (kind === 'content' ? BY_HASH : BY_CHECKSUM);
const BY_HASH: ReadInit = { verify: 'caller' };
const BY_CHECKSUM: ReadInit = { verify: 'log' };

/** The record at a place; undefined when there is none. The segment is found and leased in one synchronous step. */
export async function readAt(log: SegmentLog, place: Place, kind: Kind): Promise<LogRecord | undefined> {
  if (!isInLog(log, place)) return undefined;
  return await log.read(place, place.payload_bytes, place.meta_bytes, readInitOf(kind));
}

/** Whether bytes are the content with this id. */
export const isContentOf = (payload: Uint8Array, id: Uint8Array): boolean => Buffer.compare(blake3(payload), id) === 0;

/** Whether a record that was read as `readInitOf` says has this id: by its header, and for content by its hash. */
export function isRecord(record: LogRecord, kind: Kind, id: Uint8Array): boolean {
  const { type } = record.head;
  const isNamed = Buffer.compare(record.head.id, id) === 0 || (kind === 'shard' && isShardOf(record.payload, id));
  if (!isNamed || !isOfKind(type, kind)) return false;
  return !isContent(type) || isContentOf(record.payload, id);
}

const isShardOf = (payload: Uint8Array, id: Uint8Array): boolean =>
  shardIdsOf(payload).some((shard) => Buffer.compare(shard, id) === 0);

export interface StoredMeta {
  /** A copy; undefined when there is no record that can be read. */
  readonly meta: Uint8Array | undefined;
  /** As `isIntact`. */
  readonly isIntact: boolean;
}

/** The meta of an object's record, and whether the record is intact. */
export async function storedMeta(volume: Volume, id: Uint8Array, signal: AbortSignal): Promise<StoredMeta> {
  if (!volume.has('object', id)) return { meta: undefined, isIntact: false };
  const now = volume.getNow?.('object', id);
  if (now !== undefined) return { meta: Uint8Array.from(now.meta), isIntact: volume.isDurable('object', id) };
  try {
    const record = await volume.get('object', id, signal);
    return { meta: record?.meta, isIntact: record !== undefined && volume.isDurable('object', id) };
  } catch (error) {
    if (isRonError(error, 'integrity') || isRonError(error, 'not_ready')) return { meta: undefined, isIntact: false };
    throw error;
  }
}
