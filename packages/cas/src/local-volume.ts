/**
 * A volume in a directory: a segment log that is the truth, and an index of it that can be thrown away.
 *
 *     DIR/segments/*.seg   the log          DIR/index/        LMDB, rebuilt from the log when missing or broken
 *     DIR/quarantine/      damaged records, kept for whoever wants to know, never deleted
 *
 * Promise: as `Volume` says. Every read checks the record's own id and the hash of its bytes, so neither a flipped bit on
 * disk nor a wrong entry in the index can make it give back wrong bytes.
 * Bound: the log's queue, the index's pending entries, one scan at a time for records that the index lost.
 * Cancellation: a put that is cancelled while it waits was not written; reads stop between two reads.
 */
import { mkdirSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { blake3 } from '@napi-rs/blake-hash';
import { isRonError, RonError, sched, type Timer } from '@ron/kernel';
import {
  decodeHeader,
  HEADER_BYTES,
  recordBytes,
  SegmentLog,
  type Damage,
  type FileSystem,
  type LogRecord,
  type RecordHead,
  type RecordInput,
} from '@ron/log';
import { IndexDb, type Applied, type Place, type Table } from './index-db.ts';
import { isContent, isObject, RecordType } from './record-types.ts';
import {
  conditionOf,
  type Kind,
  type NewRecord,
  type StoredRecord,
  type Volume,
  type VolumeEvents,
  type VolumeState,
  type VolumeStats,
} from './volume.ts';

export interface LocalVolumeInit extends VolumeEvents {
  dir: string;
  /** Default: the directory. */
  name?: string;
  /** Default: the name, so that every volume is its own. */
  domain?: string;
  fs?: FileSystem;
  segment_bytes?: number;
  queue_bytes_max?: number;
  onLogDamage?: (damage: Damage) => void;
  /** Told when the index was thrown away, and why. */
  onRebuild?(why: string): void;
  signal: AbortSignal;
}

/** A flush is bounded by the disk alone: half an index is worth nothing. */
const NEVER = new AbortController().signal;
const OK: VolumeState = { condition: 'ok', reason: '' };
const FLUSH_AFTER_MS = 1000;
/** Neighbouring records are read together up to this many bytes. */
const SPAN_BYTES_MAX = 1024 * 1024 + 64 * 1024;
/** The whole log is scanned for a lost record at most this often. */
const RELOCATE_EVERY_MS = 10_000;

export class LocalVolume implements Volume {
  readonly name: string;
  readonly domain: string;
  readonly dir: string;
  readonly log: SegmentLog;
  readonly index: IndexDb;
  readonly #events: VolumeEvents;
  #state: VolumeState = OK;
  #flushTimer: Timer | undefined;
  #relocated_ms = -Infinity;
  #closing: Promise<void> | undefined;

  private constructor(init: LocalVolumeInit, log: SegmentLog, index: IndexDb) {
    this.dir = init.dir;
    this.name = init.name ?? init.dir;
    this.domain = init.domain ?? this.name;
    this.log = log;
    this.index = index;
    this.#events = init;
  }

  static async open(init: LocalVolumeInit): Promise<LocalVolume> {
    mkdirSync(join(init.dir, 'quarantine'), { recursive: true, mode: 0o700 });
    const { index, applied } = await openIndex(init);
    const log = await SegmentLog.open({
      dir: init.dir,
      signal: init.signal,
      ...(init.fs && { fs: init.fs }),
      ...(init.segment_bytes !== undefined && { segment_bytes: init.segment_bytes }),
      ...(init.queue_bytes_max !== undefined && { queue_bytes_max: init.queue_bytes_max }),
      ...(applied && { from: applied.position, seq_known: applied.seq }),
      onRecord: (head, position) => apply(index, head.id, { ...placeOf(head), ...position }),
      ...(init.onLogDamage && { onDamage: init.onLogDamage }),
      onAppended: (records, places) => {
        records.forEach((record, at) => apply(index, record.id, { ...sizesOf(record), ...places[at]! }));
      },
    });
    await index.flush({ position: log.tail, seq: log.seq }, () => Promise.resolve());
    return new LocalVolume(init, log, index);
  }

  get state(): VolumeState {
    return this.#state;
  }

  async put(records: readonly NewRecord[], signal: AbortSignal, durability: 'now' | 'later' = 'now'): Promise<void> {
    if (this.index.isFull) await this.#flush();
    await this.#watchState(this.log.append(records, signal, { durable: durability === 'now' }));
    this.#flushSoon();
  }

  async sync(signal: AbortSignal): Promise<void> {
    await this.#watchState(this.log.sync(signal));
  }

  isDurable(kind: Kind, id: Uint8Array): boolean {
    const place = this.#placeOf(kind, id);
    return place !== undefined && this.log.isDurable(place.segment, place.offset + onDisk(place));
  }

  async get(kind: Kind, id: Uint8Array, signal: AbortSignal): Promise<StoredRecord | undefined> {
    const place = this.#placeOf(kind, id);
    if (place === undefined) return undefined;
    signal.throwIfAborted();
    const record = await this.#readAt(place);
    if (record !== undefined && isRecord(record, kind, id)) return stored(record);
    const relocated = await this.#recover(kind, id, place, signal);
    return relocated === undefined ? undefined : stored(relocated);
  }

  async *getMany(ids: readonly Uint8Array[], signal: AbortSignal): AsyncGenerator<Uint8Array, void, void> {
    let next = 0;
    while (next < ids.length) {
      signal.throwIfAborted();
      const run = this.#runFrom(ids, next);
      const bytes = await this.#readRun(run);
      for (const place of run) {
        const id = ids[next]!;
        yield contentIn(bytes, place, run[0]!, id) ?? (await this.#contentOf(id, signal));
        next += 1;
      }
    }
  }

  has(kind: Kind, id: Uint8Array): boolean {
    return this.#placeOf(kind, id) !== undefined;
  }

  isPinned(id: Uint8Array): boolean {
    return this.index.get('pin', id)?.type === RecordType.pin;
  }

  async inventory(kind: Kind, after: Uint8Array | undefined, count: number): Promise<Uint8Array[]> {
    await this.#flush();
    const ids: Uint8Array[] = [];
    for (const [id, place] of this.index.entries(kind, after)) {
      if (place.type === RecordType.remove) continue;
      ids.push(Uint8Array.from(id));
      if (ids.length === count) break;
    }
    return ids;
  }

  stats(): VolumeStats {
    const segments = this.log.files.numbers();
    const used_bytes = segments.reduce((sum, segment) => sum + this.log.files.bytesOf(segment), 0);
    return { used_bytes, segments: segments.length };
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    this.#flushTimer?.cancel();
    await this.#flush().catch(() => undefined);
    await this.log.close();
    await this.index.close();
  }

  #placeOf(kind: Kind, id: Uint8Array): Place | undefined {
    const place = this.index.get(kind, id);
    return place?.type === RecordType.remove ? undefined : place;
  }

  async #readAt(place: Place): Promise<LogRecord | undefined> {
    if (!this.log.files.has(place.segment)) return undefined;
    return await this.log.read(place, place.payload_bytes, place.meta_bytes);
  }

  async #contentOf(id: Uint8Array, signal: AbortSignal): Promise<Uint8Array> {
    const record = await this.get('content', id, signal);
    if (record === undefined) throw new RonError('not_found', `${this.name} does not hold ${hexOf(id)}`);
    return record.payload;
  }

  /** The places of the ids from `from` on that lie one after another on disk. */
  #runFrom(ids: readonly Uint8Array[], from: number): Place[] {
    const run: Place[] = [];
    let bytes = 0;
    for (let at = from; at < ids.length; at++) {
      const place = this.#placeOf('content', ids[at]!);
      if (place === undefined) {
        if (run.length > 0) break;
        throw new RonError('not_found', `${this.name} does not hold ${hexOf(ids[at]!)}`);
      }
      const last = run.at(-1);
      const isNext =
        last === undefined || (place.segment === last.segment && place.offset === last.offset + onDisk(last));
      if (!isNext || (run.length > 0 && bytes + onDisk(place) > SPAN_BYTES_MAX)) break;
      run.push(place);
      bytes += onDisk(place);
    }
    return run;
  }

  async #readRun(run: readonly Place[]): Promise<Buffer> {
    const bytes = run.reduce((sum, place) => sum + onDisk(place), 0);
    const buffer = Buffer.allocUnsafeSlow(bytes);
    const { segment, offset } = run[0]!;
    if (!this.log.files.has(segment)) return buffer.subarray(0, 0);
    const count = await this.log.files.read(segment, buffer, bytes, offset);
    return buffer.subarray(0, count);
  }

  /**
   * The index pointed at something else than the record. If that is the right record, damaged, it goes to quarantine.
   * If it is another one, the index is wrong: the log is searched, and the entry corrected.
   */
  async #recover(kind: Kind, id: Uint8Array, place: Place, signal: AbortSignal): Promise<LogRecord | undefined> {
    // Compaction may have moved it since we looked.
    const now = this.#placeOf(kind, id);
    if (now !== undefined && (now.segment !== place.segment || now.offset !== place.offset)) {
      const moved = await this.#readAt(now);
      if (moved !== undefined && isRecord(moved, kind, id)) return moved;
    }
    const found = await this.#relocate(kind, id, signal);
    if (found !== undefined) return found;
    await this.#quarantine(kind, id, place);
    throw new RonError('integrity', `a stored record is damaged: ${hexOf(id)}`, { details: { id: hexOf(id) } });
  }

  async #relocate(kind: Kind, id: Uint8Array, signal: AbortSignal): Promise<LogRecord | undefined> {
    if (sched.now_ms() - this.#relocated_ms < RELOCATE_EVERY_MS) return undefined;
    this.#relocated_ms = sched.now_ms();
    const candidates: Place[] = [];
    for (const segment of this.log.files.numbers()) {
      const keep = (head: RecordHead, position: { segment: number; offset: number }): void => {
        const fits = kind === 'content' ? isContent(head.type) : isObject(head.type);
        if (fits && Buffer.compare(head.id, id) === 0) candidates.push({ ...placeOf(head), ...position });
      };
      await this.log.scanSegment(segment, keep, () => undefined, signal);
    }
    for (const place of candidates.toSorted((a, b) => b.seq - a.seq)) {
      const record = await this.#readAt(place);
      if (record === undefined || !isRecord(record, kind, id)) continue;
      this.index.set(kind, id, place);
      this.#flushSoon();
      return record;
    }
    return undefined;
  }

  async #quarantine(kind: Kind, id: Uint8Array, place: Place): Promise<void> {
    const what = `${kind} at segment ${place.segment}, offset ${place.offset}`;
    const bytes = Buffer.alloc(onDisk(place));
    const count = this.log.files.has(place.segment)
      ? await this.log.files.read(place.segment, bytes, bytes.length, place.offset).catch(() => 0)
      : 0;
    const path = join(this.dir, 'quarantine', `${hexOf(id)}-${place.segment}-${place.offset}`);
    // The copy is for people; a disk that cannot take it must not turn a damaged record into a failed service.
    await writeFile(path, bytes.subarray(0, count), { mode: 0o600 }).catch(() => undefined);
    this.index.remove(kind, id);
    if (place.type === RecordType.object) this.index.remove(kind === 'content' ? 'object' : 'content', id);
    this.#flushSoon();
    this.#events.onDamage?.({ volume: this.name, id_hex: hexOf(id), what });
  }

  async #watchState(write: Promise<unknown>): Promise<void> {
    try {
      await write;
      this.#become(OK);
    } catch (error) {
      if (isRonError(error, 'storage_full') || isRonError(error, 'not_ready')) {
        this.#become({ condition: conditionOf(error), reason: `${this.name}: ${error.message}` });
      }
      throw error;
    }
  }

  #become(state: VolumeState): void {
    if (state.condition === this.#state.condition && state.reason === this.#state.reason) return;
    this.#state = state;
    this.#events.onState?.(state);
  }

  #flushSoon(): void {
    if (this.#flushTimer !== undefined || this.#closing !== undefined) return;
    this.#flushTimer = sched.timer(
      FLUSH_AFTER_MS,
      () => {
        this.#flushTimer = undefined;
        // A failed flush leaves the entries in memory; the next one tries again, and the log has them all.
        void this.#flush().catch(() => this.#flushSoon());
      },
      'index.flush',
    );
  }

  /** The index must not know what the log could lose: the log is synced between taking the entries and storing them. */
  async #flush(): Promise<void> {
    await this.index.flush({ position: this.log.tail, seq: this.log.seq }, () => this.log.sync(NEVER));
  }
}

/** The index, unless it knows more than the log holds: then the log decides, and somebody has to hear of it. */
async function openIndex(init: LocalVolumeInit): Promise<{ index: IndexDb; applied: Applied | undefined }> {
  const { index, applied, rebuilt } = IndexDb.open(join(init.dir, 'index'));
  if (rebuilt !== undefined) init.onRebuild?.(rebuilt);
  if (applied === undefined || (await SegmentLog.reaches(init.dir, applied.position, init.fs)))
    return { index, applied };
  const { segment, offset } = applied.position;
  init.onRebuild?.(`segment ${segment} ends before offset ${offset}, which was durable: records are lost`);
  return { index: await index.startAnew(), applied: undefined };
}

const TABLE_OF_TYPE: Record<number, readonly Table[]> = {
  [RecordType.chunk]: ['content'],
  [RecordType.object]: ['content', 'object'],
  [RecordType.page]: ['content'],
  [RecordType.manifest]: ['object'],
  [RecordType.remove]: ['object'],
  [RecordType.pin]: ['pin'],
  [RecordType.unpin]: ['pin'],
};

/** The newest record wins; one that was only moved has the number it had. */
function apply(index: IndexDb, id: Uint8Array, place: Place): void {
  for (const table of TABLE_OF_TYPE[place.type] ?? []) {
    const known = index.get(table, id);
    if (known === undefined || place.seq >= known.seq) index.set(table, id, place);
  }
}

function placeOf(head: RecordHead): Omit<Place, 'segment' | 'offset'> {
  return { type: head.type, payload_bytes: head.payload_bytes, meta_bytes: head.meta_bytes, seq: head.seq };
}

function sizesOf(record: RecordInput): Omit<Place, 'segment' | 'offset' | 'seq'> {
  return { type: record.type, payload_bytes: record.payload.length, meta_bytes: record.meta?.length ?? 0 };
}

const onDisk = (place: Place): number => recordBytes(place.payload_bytes, place.meta_bytes);
const hexOf = (id: Uint8Array): string => Buffer.from(id).toString('hex');
const stored = (record: LogRecord): StoredRecord => ({
  type: record.head.type,
  payload: record.payload,
  meta: record.meta,
});

/** Whether a record is the one that was asked for: its header says so, and for content its bytes do. */
function isRecord(record: LogRecord, kind: Kind, id: Uint8Array): boolean {
  if (Buffer.compare(record.head.id, id) !== 0) return false;
  if (kind === 'object' && !isObject(record.head.type)) return false;
  if (isContent(record.head.type)) return Buffer.compare(blake3(record.payload), id) === 0;
  return kind === 'object';
}

/** The content at `place` in bytes that begin at `start`; undefined when it is not what `id` says. */
function contentIn(bytes: Buffer, place: Place, start: Place, id: Uint8Array): Uint8Array | undefined {
  const at = place.offset - start.offset;
  const head = decodeHeader(bytes, at);
  if (head === undefined || head.payload_bytes !== place.payload_bytes) return undefined;
  const payload = bytes.subarray(at + HEADER_BYTES, at + HEADER_BYTES + place.payload_bytes);
  if (payload.length < place.payload_bytes) return undefined;
  return Buffer.compare(blake3(payload), id) === 0 ? payload : undefined;
}
