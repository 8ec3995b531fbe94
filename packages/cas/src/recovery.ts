/**
 * What to do when the index leads to something else than the record that was asked for.
 *
 * Promise: a record that is anywhere in the log, whole, is found and the index corrected. One that is damaged goes to
 * quarantine and is then unknown; it is never deleted, and somebody is told.
 * Bound: the log is searched at most once in `SEARCH_EVERY_MS`; in between, what is not where it should be counts as damaged.
 * Cancellation: by the signal, while the log is searched.
 */
import { join } from 'node:path';
import { blake3 } from '@napi-rs/blake-hash';
import { isRonError, RonError, sched } from '@ron/kernel';
import { bodyCrc, type LogRecord, type RecordHead, type SegmentLog } from '@ron/log';
import { hexOf } from './hex.ts';
import type { Place, PlaceIndex } from './place-index.ts';
import { isAt, onDisk, placeOfHead } from './record-places.ts';
import { isContent, isObject, RecordType } from './record-types.ts';
import { shardIdsOf } from './stripe.ts';
import type { DamagedRecord, Kind } from './volume.ts';

const SEARCH_EVERY_MS = 10_000;

export interface RecoveryInit {
  volume: string;
  dir: string;
  log: SegmentLog;
  index: PlaceIndex;
  onDamage: ((record: DamagedRecord) => void) | undefined;
}

export class Recovery {
  readonly #init: RecoveryInit;
  #searched_ms = -Infinity;
  /** How often an entry of the index was led to another copy of its record: compaction has to look again then. */
  relocated_total = 0;

  constructor(init: RecoveryInit) {
    this.#init = init;
  }

  /** The record, from another place than `place`, where it was not. Throws `integrity` when it is nowhere. */
  async recover(kind: Kind, id: Uint8Array, place: Place, signal: AbortSignal): Promise<LogRecord> {
    const moved = await this.#readMoved(kind, id, place);
    const found = moved ?? (await this.#search(kind, id, signal));
    if (found !== undefined) return found;
    await this.#quarantine(kind, id, place);
    throw new RonError('integrity', `a stored record is damaged: ${hexOf(id)}`, { details: { id: hexOf(id) } });
  }

  /** Keeps bytes aside that are no record, or a damaged one. Whether they are kept, durably. */
  async keepAside(name: string, segment: number, offset: number, bytes: number): Promise<boolean> {
    const { dir, log } = this.#init;
    try {
      const content = Buffer.alloc(bytes);
      const count = await log.files.read(segment, content, bytes, offset);
      const file = await log.files.fs.create(join(dir, 'quarantine', `${name}-${segment}-${offset}`));
      try {
        await file.write([content.subarray(0, count)], 0);
        await file.sync();
      } finally {
        await file.close();
      }
      await log.files.fs.syncDir(join(dir, 'quarantine'));
      return true;
    } catch (error) {
      // The same bytes may have been kept before. The copy is for people: a disk that cannot take it must not turn a
      // damaged record into a failed service.
      return (error as NodeJS.ErrnoException).code === 'EEXIST';
    }
  }

  /** Compaction may have moved it since the index was asked. */
  async #readMoved(kind: Kind, id: Uint8Array, place: Place): Promise<LogRecord | undefined> {
    const { log, index } = this.#init;
    const now = index.get(kind, id);
    if (now === undefined || isAt(now, place.segment, place.offset)) return undefined;
    const record = await readAt(log, now);
    return record !== undefined && isRecord(record, kind, id) ? record : undefined;
  }

  async #search(kind: Kind, id: Uint8Array, signal: AbortSignal): Promise<LogRecord | undefined> {
    if (sched.now_ms() - this.#searched_ms < SEARCH_EVERY_MS) return undefined;
    this.#searched_ms = sched.now_ms();
    const { log, index } = this.#init;
    for (const place of await this.#candidates(kind, id, signal)) {
      const record = await readAt(log, place);
      if (record === undefined || !isRecord(record, kind, id) || !log.files.has(place.segment)) continue;
      index.set(kind, id, place);
      this.relocated_total += 1;
      return record;
    }
    return undefined;
  }

  /** Where records of that kind and id lie, newest first. */
  async #candidates(kind: Kind, id: Uint8Array, signal: AbortSignal): Promise<Place[]> {
    const { log } = this.#init;
    const candidates: Place[] = [];
    const keep = (head: RecordHead, position: { segment: number; offset: number }): void => {
      if (isOfKind(head.type, kind) && Buffer.compare(head.id, id) === 0) candidates.push(placeOfHead(head, position));
    };
    for (const segment of log.files.numbers()) {
      try {
        await log.scanSegment(segment, keep, () => undefined, signal);
      } catch (error) {
        // Compaction has removed it meanwhile; what was needed of it lies in a later one.
        if (!isRonError(error, 'not_found')) throw error;
      }
    }
    return candidates.toSorted((a, b) => b.seq - a.seq);
  }

  async #quarantine(kind: Kind, id: Uint8Array, place: Place): Promise<void> {
    const { index, volume, onDamage } = this.#init;
    await this.keepAside(hexOf(id), place.segment, place.offset, onDisk(place));
    // Only what was found to be damaged: somebody may have stored it anew meanwhile.
    for (const table of place.type === RecordType.object ? (['content', 'object'] as const) : [kind]) {
      if (isAt(index.get(table, id), place.segment, place.offset)) index.remove(table, id);
    }
    const what = `${kind} at segment ${place.segment}, offset ${place.offset}`;
    onDamage?.({ volume, id_hex: hexOf(id), what });
  }
}

/** The record at a place; undefined when there is none. Finding the segment and leasing it are one step. */
export async function readAt(log: SegmentLog, place: Place): Promise<LogRecord | undefined> {
  if (!log.files.has(place.segment)) return undefined;
  return await log.read(place, place.payload_bytes, place.meta_bytes);
}

/**
 * Whether a record is the one that was asked for: its header says so, and for content its bytes do. What no hash covers,
 * the size in a manifest and the media type of any object, is covered by the checksum.
 */
export function isRecord(record: LogRecord, kind: Kind, id: Uint8Array): boolean {
  const { type, body_crc } = record.head;
  const isNamed = Buffer.compare(record.head.id, id) === 0 || (kind === 'shard' && isShardOf(record.payload, id));
  if (!isNamed || !isOfKind(type, kind)) return false;
  if (kind !== 'content' && bodyCrc(record.payload, record.meta) !== body_crc) return false;
  return !isContent(type) || Buffer.compare(blake3(record.payload), id) === 0;
}

const isShardOf = (payload: Uint8Array, id: Uint8Array): boolean =>
  shardIdsOf(payload).some((shard) => Buffer.compare(shard, id) === 0);

function isOfKind(type: number, kind: Kind): boolean {
  if (kind === 'content') return isContent(type);
  if (kind === 'object') return isObject(type);
  return type === (kind === 'note' ? RecordType.note : RecordType.stripe);
}
