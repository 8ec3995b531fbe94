/**
 * Reads the records of a local volume.
 *
 * Contract: every record is verified against its id, and content against its hash, so a flipped bit on disk never reaches a
 * caller. A damaged record is quarantined and reported as `integrity`. Calls with `Now` in their name never wait for a disk.
 * Bound: as in content-runs.ts for `getMany`, else one record. Cancellation: by the signal, between two reads.
 */
import { RonError } from '@ron/kernel';
import type { LogRecord, SegmentLog } from '@ron/log';
import type { Place } from '../index/entry.ts';
import type { IndexFlusher } from '../index/index-flusher.ts';
import type { PlaceIndex } from '../index/place-index.ts';
import { isAt } from '../index/record-places.ts';
import { ON_DISK } from '../index/run-index.ts';
import { contentRuns } from './content-runs.ts';
import { hexOf } from './hex.ts';
import { damaged, type Quarantine } from './quarantine.ts';
import { isEnd } from './record-types.ts';
import { isInLog, isRecord, readAt, readInitOf } from './verify-record.ts';
import type { Kind, StoredRecord } from './volume.ts';

export interface RecordReaderInit {
  /** The name of the volume. */
  readonly name: string;
  readonly log: SegmentLog;
  readonly index: PlaceIndex;
  readonly quarantine: Quarantine;
  readonly flusher: IndexFlusher;
}

/** A record that moves while it is read is looked up again this often. */
const READ_ATTEMPTS = 8;

export class RecordReader {
  readonly #init: RecordReaderInit;

  constructor(init: RecordReaderInit) {
    this.#init = init;
  }

  async get(kind: Kind, id: Uint8Array, signal: AbortSignal): Promise<StoredRecord | undefined> {
    let last: Place | undefined;
    for (let attempt = 0; attempt < READ_ATTEMPTS; attempt++) {
      const place = await this.placeOf(kind, id);
      if (place === undefined) return undefined;
      signal.throwIfAborted();
      // The record was not at this place, and the index still leads there: it was not moved meanwhile.
      if (last !== undefined && isAt(place, last.segment, last.offset)) return await this.#failDamaged(kind, id, place);
      const record = this.#readNow(kind, id, place, 'keep') ?? (await readAt(this.#init.log, place, kind));
      if (record !== undefined && isRecord(record, kind, id)) return stored(record);
      last = place;
    }
    throw new RonError('not_ready', `${hexOf(id)} moves faster than it can be read`, { retry_after_ms: 1000 });
  }

  /** The record if no disk has to be waited for. Its bytes are valid until the next call. */
  getNow(kind: Kind, id: Uint8Array): StoredRecord | undefined {
    const place = this.#init.index.getNow(kind, id);
    if (place === undefined || place === ON_DISK || isEnd(place.type)) return undefined;
    const record = this.#readNow(kind, id, place, 'peek');
    return record && stored(record);
  }

  getMany(ids: readonly Uint8Array[], signal: AbortSignal): AsyncGenerator<readonly Uint8Array[], void, void> {
    const { name, log, index } = this.#init;
    const placeNow = (id: Uint8Array): ReturnType<PlaceIndex['getNow']> => index.getNow('content', id);
    const placeOf = (id: Uint8Array): Promise<Place | undefined> => index.get('content', id);
    const contentOf = (id: Uint8Array): Promise<Uint8Array> => this.#contentOf(id, signal);
    return contentRuns({ name, log, placeNow, placeOf, contentOf }, ids, signal);
  }

  async placeOf(kind: Kind, id: Uint8Array): Promise<Place | undefined> {
    const { index } = this.#init;
    const now = index.getNow(kind, id);
    const place = now === ON_DISK ? await index.get(kind, id) : now;
    return place === undefined || isEnd(place.type) ? undefined : place;
  }

  #readNow(kind: Kind, id: Uint8Array, place: Place, use: 'keep' | 'peek'): LogRecord | undefined {
    const { log } = this.#init;
    if (!isInLog(log, place)) return undefined;
    const { payload_bytes, meta_bytes } = place;
    const init = readInitOf(kind);
    const record =
      use === 'keep'
        ? log.readNow(place, payload_bytes, meta_bytes, init)
        : log.peekNow(place, payload_bytes, meta_bytes, init);
    return record !== undefined && isRecord(record, kind, id) ? record : undefined;
  }

  async #failDamaged(kind: Kind, id: Uint8Array, place: Place): Promise<never> {
    if (place.isDamaged !== true) await this.#init.quarantine.add(kind, id, place);
    this.#init.flusher.soon();
    throw damaged(id);
  }

  async #contentOf(id: Uint8Array, signal: AbortSignal): Promise<Uint8Array> {
    const record = await this.get('content', id, signal);
    if (record === undefined) throw new RonError('not_found', `${this.#init.name} does not hold ${hexOf(id)}`);
    return record.payload;
  }
}

const stored = (record: LogRecord): StoredRecord => ({
  type: record.head.type,
  payload: record.payload,
  meta: record.meta,
});
