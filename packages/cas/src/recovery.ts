/**
 * What to do when the index leads to something else than the record that was asked for.
 *
 * Promise: a record that is anywhere in the log, whole, is found and the index corrected. One that is damaged goes to
 * quarantine and is then unknown; it is never deleted, and somebody is told. An object is not unknown then, but damaged,
 * until it is stored anew or removed: what it is made of may be whole, and needed. It counts as damaged when its own header is
 * where the index says and its body is not what it was, or when the whole log was searched for it: until then it is
 * `not_ready`.
 * Bound: as LogSearch says. Nothing is allocated because of what the index says: that is compared with the segment first.
 * Cancellation: by the signal; a search goes on.
 */
import { join } from 'node:path';
import { blake3 } from '@napi-rs/blake-hash';
import { isRonError, RonError } from '@ron/kernel';
import { decodeHeader, HEADER_BYTES, type LogRecord, type ReadInit, type RecordHead, type SegmentLog } from '@ron/log';
import { hexOf } from './hex.ts';
import { LogSearch, type Wanted } from './log-search.ts';
import type { Place, PlaceIndex } from './place-index.ts';
import { isAt, onDisk, placeOfHead } from './record-places.ts';
import { isContent, isOfKind, RecordType } from './record-types.ts';
import { shardIdsOf } from './stripe.ts';
import type { DamagedRecord, Kind } from './volume.ts';

export interface RecoveryInit {
  volume: string;
  dir: string;
  log: SegmentLog;
  index: PlaceIndex;
  onDamage: ((record: DamagedRecord) => void) | undefined;
}

export class Recovery {
  readonly #init: RecoveryInit;
  readonly #search: LogSearch;
  /** How often an entry of the index was led to another copy of its record: compaction has to look again then. */
  relocated_total = 0;

  constructor(init: RecoveryInit) {
    this.#init = init;
    this.#search = new LogSearch({ log: init.log, settle: (wanted, candidates) => this.#settle(wanted, candidates) });
  }

  /**
   * The record, from another place than `place`, where it was not. Throws `integrity` when it is damaged, `not_ready` while
   * nobody knows.
   */
  async recover(kind: Kind, id: Uint8Array, place: Place, signal: AbortSignal): Promise<LogRecord> {
    const wanted = { kind, id, place };
    const moved = await this.#readMoved(wanted);
    if (moved !== undefined) return moved;
    if (place.isDamaged === true) throw damaged(id);
    const head = await this.#headAt(wanted);
    const here = head && (await this.#readHere(wanted, head));
    if (here !== undefined) return here;
    try {
      await this.#search.run(wanted, signal);
    } catch (error) {
      // Its header is whole and its body is not: no search is needed to know that.
      if (head === undefined || !isRonError(error, 'not_ready')) throw error;
      await this.#quarantine(wanted);
    }
    const found = await this.#readIndexed(wanted);
    if (found !== undefined) return found;
    throw damaged(id);
  }

  /** Ends a search that is under way. */
  close(): Promise<void> {
    return this.#search.close();
  }

  /** Keeps bytes aside that are no record, or a damaged one. Whether they are kept, durably. */
  async keepAside(name: string, segment: number, offset: number, bytes: number): Promise<boolean> {
    const { dir, log } = this.#init;
    try {
      const content = Buffer.alloc(Math.max(0, Math.min(bytes, log.files.bytesOf(segment) - offset)));
      const count = await log.files.read(segment, content, content.length, offset);
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
  async #readMoved(wanted: Wanted): Promise<LogRecord | undefined> {
    const { segment, offset } = wanted.place;
    const now = this.#init.index.get(wanted.kind, wanted.id);
    return isAt(now, segment, offset) ? undefined : await this.#readIndexed(wanted);
  }

  /** From where the index leads to by now. */
  async #readIndexed({ kind, id }: Wanted): Promise<LogRecord | undefined> {
    const now = this.#init.index.get(kind, id);
    const record = now && (await readAt(this.#init.log, now, kind));
    return record !== undefined && isRecord(record, kind, id) ? record : undefined;
  }

  /** The header at the place, when it is that of the record. */
  async #headAt({ kind, id, place }: Wanted): Promise<RecordHead | undefined> {
    const { log } = this.#init;
    const { segment, offset } = place;
    if (!isInLog(log, { ...place, payload_bytes: 0, meta_bytes: 0 })) return undefined;
    const bytes = Buffer.alloc(HEADER_BYTES);
    const salt = log.files.saltOf(segment);
    await log.files.read(segment, bytes, HEADER_BYTES, offset);
    const head = decodeHeader(bytes, 0, salt);
    const isIt = head !== undefined && isOfKind(head.type, kind) && Buffer.compare(head.id, id) === 0;
    return isIt ? head : undefined;
  }

  /** The index may be wrong about the size alone. */
  async #readHere({ kind, id, place }: Wanted, head: RecordHead): Promise<LogRecord | undefined> {
    const { log, index } = this.#init;
    const here = placeOfHead(head, place);
    const record = await readAt(log, here, kind);
    if (record === undefined || !isRecord(record, kind, id)) return undefined;
    if (isAt(index.get(kind, id), place.segment, place.offset)) index.set(kind, id, here);
    return record;
  }

  /** The log was searched: leads the index to the record, or keeps aside what lies in its place. */
  async #settle(wanted: Wanted, candidates: readonly Place[]): Promise<void> {
    const { log, index } = this.#init;
    const { kind, id, place } = wanted;
    for (const candidate of candidates) {
      const record = await readAt(log, candidate, kind);
      if (record === undefined || !isRecord(record, kind, id) || !log.files.has(candidate.segment)) continue;
      // Somebody may have stored or removed it meanwhile.
      if (!isAt(index.get(kind, id), place.segment, place.offset)) return;
      index.set(kind, id, candidate);
      this.relocated_total += 1;
      return;
    }
    if ((await this.#readMoved(wanted)) === undefined) await this.#quarantine(wanted);
  }

  async #quarantine({ kind, id, place }: Wanted): Promise<void> {
    const { index, volume, onDamage } = this.#init;
    await this.keepAside(hexOf(id), place.segment, place.offset, onDisk(place));
    // Only what was found to be damaged: somebody may have stored it anew meanwhile.
    for (const table of place.type === RecordType.object ? (['content', 'object'] as const) : [kind]) {
      const known = index.get(table, id);
      if (known === undefined || !isAt(known, place.segment, place.offset)) continue;
      if (table === 'object') index.set(table, id, { ...known, isDamaged: true });
      else index.remove(table, id);
    }
    const what = `${kind} at segment ${place.segment}, offset ${place.offset}`;
    onDamage?.({ volume, id_hex: hexOf(id), what });
  }
}

const damaged = (id: Uint8Array): RonError =>
  new RonError('integrity', `a stored record is damaged: ${hexOf(id)}`, { details: { id: hexOf(id) } });

/** Whether a place lies inside the durable part of its segment. An index entry without a checksum may hold any number. */
export function isInLog({ files }: SegmentLog, place: Place): boolean {
  return files.has(place.segment) && place.offset + onDisk(place) <= files.durableBytesOf(place.segment);
}

/**
 * How a record of a kind is read. Content is verified by its hash in `isRecord`. Of anything else the log verifies the
 * checksum, which covers the size in a manifest and the media type of an object.
 */
export const readInitOf = (kind: Kind | undefined): ReadInit => (kind === 'content' ? BY_HASH : BY_CHECKSUM);
const BY_HASH: ReadInit = { verify: 'caller' };
const BY_CHECKSUM: ReadInit = { verify: 'log' };

/** The record at a place; undefined when there is none. Finding the segment and leasing it are one step. */
export async function readAt(log: SegmentLog, place: Place, kind?: Kind): Promise<LogRecord | undefined> {
  if (!isInLog(log, place)) return undefined;
  return await log.read(place, place.payload_bytes, place.meta_bytes, readInitOf(kind));
}

/** Whether a record that was read by `readInitOf` its kind is the one with this id: by its header, and for content by its hash. */
export function isRecord(record: LogRecord, kind: Kind, id: Uint8Array): boolean {
  const { type } = record.head;
  const isNamed = Buffer.compare(record.head.id, id) === 0 || (kind === 'shard' && isShardOf(record.payload, id));
  if (!isNamed || !isOfKind(type, kind)) return false;
  return !isContent(type) || Buffer.compare(blake3(record.payload), id) === 0;
}

const isShardOf = (payload: Uint8Array, id: Uint8Array): boolean =>
  shardIdsOf(payload).some((shard) => Buffer.compare(shard, id) === 0);
