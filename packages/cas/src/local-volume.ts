/**
 * A volume in a directory: a segment log that is the truth, and an index of it that can be thrown away.
 *
 *     DIR/segments/*.seg   the log          DIR/index/        LMDB, rebuilt from the log when missing or broken
 *     DIR/quarantine/      damaged records, kept for whoever wants to know, never deleted
 *     DIR/lock             held while a process has the volume open
 *
 * Promise: as `Volume` says. Every read checks the record's own id and the hash of its bytes, so neither a flipped bit on
 * disk nor a wrong entry in the index can make it give back wrong bytes.
 * Bound: the log's queue, the index's pending entries, one scan at a time for records that the index lost. The last
 * 256 MiB of a disk (a sixteenth of a small one) are kept for what makes room: see reserve.ts.
 * Cancellation: a put that is cancelled while it waits was not written; reads stop between two reads.
 */
import { join } from 'node:path';
import { assert, isRonError, NEVER, RonError } from '@ron/kernel';
import { ID_BYTES, rethrowDisk, type Damage, type FileSystem, type LogRecord, type SegmentLog } from '@ron/log';
import { contentRuns } from './content-runs.ts';
import { hexOf } from './hex.ts';
import { IndexFlusher } from './index-flusher.ts';
import { lockOf, openIndexedLog, type IndexedLog } from './open-index.ts';
import type { Place, PlaceIndex, PlaceStore } from './place-index.ts';
import { namesShards } from './record-places.ts';
import { isEnd, RecordType, takesRoom } from './record-types.ts';
import { isInLog, isRecord, readAt, readInitOf, Recovery } from './recovery.ts';
import { Reserve } from './reserve.ts';
import { rewriteSegments } from './rewrite.ts';
import { scrubStep } from './scrub-step.ts';
import {
  conditionOf,
  type Held,
  type Kind,
  type NewRecord,
  type Reclaimed,
  type ReclaimInit,
  type ScrubCursor,
  type ScrubStep,
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
  /** The index is taken to disk this long after a change. Default 3 s; Infinity: only when it is full, and at the end. */
  flush_after_ms?: number;
  /** Where the index is kept. Default: LMDB in the directory, or memory when the directory is read-only. */
  places?: PlaceStore;
  signal: AbortSignal;
}

const OK: VolumeState = { condition: 'ok', reason: '' };
const FLUSH_AFTER_MS = 3000;

export class LocalVolume implements Volume {
  readonly name: string;
  readonly domain: string;
  readonly isDoneWithPayloads = true;
  readonly dir: string;
  readonly log: SegmentLog;
  readonly index: PlaceIndex;
  readonly isDoubtful: boolean;
  readonly #events: VolumeEvents;
  readonly #recovery: Recovery;
  readonly #lock: Disposable | undefined;
  readonly #reserve: Reserve;
  readonly #flusher: IndexFlusher;
  #state: VolumeState = OK;
  #isReclaiming = false;
  #closing: Promise<void> | undefined;

  private constructor(init: LocalVolumeInit, { log, index, isDoubtful }: IndexedLog, lock: Disposable | undefined) {
    this.dir = init.dir;
    this.name = init.name ?? init.dir;
    this.domain = init.domain ?? this.name;
    this.log = log;
    this.index = index;
    this.isDoubtful = isDoubtful;
    this.#lock = lock;
    this.#reserve = new Reserve(log.files.fs, init.dir);
    this.#events = init;
    this.#flusher = new IndexFlusher({ log, index, flush_after_ms: init.flush_after_ms ?? FLUSH_AFTER_MS });
    const onDamage = init.onDamage?.bind(init);
    this.#recovery = new Recovery({ volume: this.name, dir: init.dir, log, index, onDamage });
  }

  /** Refused while another process has the directory. */
  static async open(init: LocalVolumeInit): Promise<LocalVolume> {
    const lock = await lockOf(init);
    try {
      const volume = new LocalVolume(init, await openIndexedLog(init), lock);
      await volume.#begin();
      return volume;
    } catch (error) {
      lock?.[Symbol.dispose]();
      throw error;
    }
  }

  async #begin(): Promise<void> {
    await this.#reserve.measure();
    // On a disk that takes no names reads still work; what is damaged is then not kept aside.
    await this.log.files.fs.makeDir(join(this.dir, 'quarantine')).catch(() => undefined);
    // The log has it all: an index that cannot be written now is written later.
    await this.#flusher.flush().catch(() => this.#flusher.again());
  }

  get state(): VolumeState {
    return this.#state;
  }

  /** How often the index led elsewhere than to its record, and was corrected. */
  get relocated_total(): number {
    return this.#recovery.relocated_total;
  }

  async put(records: readonly NewRecord[], signal: AbortSignal, durability: 'now' | 'later' = 'now'): Promise<void> {
    if (this.index.isOverfull) {
      this.#flusher.again();
      throw new RonError('not_ready', `the index of ${this.name} cannot be written`, {
        cause: this.#flusher.failure,
        retry_after_ms: 1000,
      });
    }
    // Nothing may wait before this: who decided to put something, and had it ordered in the same step, is in that order.
    await this.#watchState(this.#append(records, signal, durability));
    if (this.index.isFull) await this.#flusher.flush().catch(() => this.#flusher.again());
    else this.#flusher.soon();
  }

  async #append(records: readonly NewRecord[], signal: AbortSignal, durability: 'now' | 'later'): Promise<void> {
    assert(
      records.every(({ id }) => id.length === ID_BYTES),
      'a record id has 32 bytes',
    );
    const bytes = records.reduce((sum, { type, payload }) => (takesRoom(type) ? sum + payload.length : sum), 0);
    if (bytes > 0 && this.#reserve.isReached(bytes)) {
      const kept = `its last ${this.#reserve.bytes} bytes are kept for what makes room again (removals, compaction)`;
      throw new RonError('storage_full', `the disk is full: ${kept}`, { retry_after_ms: 1000 });
    }
    // The index needs the payload of a record that names shards, and the log keeps payloads only for durable appends.
    const durable = durability === 'now' || records.some(({ type }) => namesShards(type));
    await this.log.append(records, signal, { durable });
    this.#reserve.wrote(bytes);
  }

  async sync(signal: AbortSignal): Promise<void> {
    await this.#watchState(this.log.sync(signal));
    this.#flusher.soon();
  }

  isDurable(kind: Kind, id: Uint8Array): boolean {
    const place = this.#placeOf(kind, id);
    return place !== undefined && place.isDamaged !== true;
  }

  async get(kind: Kind, id: Uint8Array, signal: AbortSignal): Promise<StoredRecord | undefined> {
    const place = this.#placeOf(kind, id);
    if (place === undefined) return undefined;
    signal.throwIfAborted();
    const now = this.#readNow(kind, id, place, 'keep');
    if (now !== undefined) return now;
    const record = await readAt(this.log, place, kind);
    if (record !== undefined && isRecord(record, kind, id)) return stored(record);
    try {
      return stored(await this.#recovery.recover(kind, id, place, signal));
    } finally {
      this.#flusher.soon();
    }
  }

  getNow(kind: Kind, id: Uint8Array): StoredRecord | undefined {
    const place = this.#placeOf(kind, id);
    return place === undefined ? undefined : this.#readNow(kind, id, place, 'look');
  }

  #readNow(kind: Kind, id: Uint8Array, place: Place, use: 'keep' | 'look'): StoredRecord | undefined {
    const { log } = this;
    if (!isInLog(log, place)) return undefined;
    const { payload_bytes, meta_bytes } = place;
    const init = readInitOf(kind);
    const record =
      use === 'keep'
        ? log.readNow(place, payload_bytes, meta_bytes, init)
        : log.peekNow(place, payload_bytes, meta_bytes, init);
    return record !== undefined && isRecord(record, kind, id) ? stored(record) : undefined;
  }

  getMany(ids: readonly Uint8Array[], signal: AbortSignal): AsyncGenerator<readonly Uint8Array[], void, void> {
    const placeOf = (id: Uint8Array): Place | undefined => this.#placeOf('content', id);
    const contentOf = (id: Uint8Array): Promise<Uint8Array> => this.#contentOf(id, signal);
    return contentRuns({ name: this.name, log: this.log, placeOf, contentOf }, ids, signal);
  }

  has(kind: Kind, id: Uint8Array): boolean {
    return this.#placeOf(kind, id) !== undefined;
  }

  isPinned(id: Uint8Array): boolean {
    return this.index.get('pin', id)?.type === RecordType.pin;
  }

  wasRemoved(id: Uint8Array): boolean {
    return this.index.get('object', id)?.type === RecordType.remove;
  }

  putTime_s(kind: Kind, id: Uint8Array): number | undefined {
    return this.#placeOf(kind, id)?.time_s;
  }

  async inventory(kind: Kind, after: Uint8Array | undefined, count: number): Promise<Held[]> {
    if (after === undefined) await this.#flusher.flush();
    const held: Held[] = [];
    for (const [id, { type, payload_bytes, time_s }] of this.index.entries(kind, after)) {
      if (isEnd(type)) continue;
      held.push({ id: Uint8Array.from(id), type, payload_bytes, put_s: time_s });
      if (held.length === count) break;
    }
    return held;
  }

  async listIds(kind: Kind, after: Uint8Array | undefined, into: Buffer): Promise<number> {
    if (after === undefined) await this.#flusher.flush();
    // Of contents none has ended: so what the entries say need not be looked at.
    if (kind === 'content') return this.index.ids(kind, after, into);
    let bytes = 0;
    for (const [id, { type, isDamaged }] of this.index.entries(kind, after)) {
      if (bytes + ID_BYTES > into.length) break;
      if (isEnd(type) || isDamaged === true) continue;
      into.set(id, bytes);
      bytes += ID_BYTES;
    }
    return bytes / ID_BYTES;
  }

  held(kind: Kind, id: Uint8Array): Held | undefined {
    const place = this.#placeOf(kind, id);
    return place && { id, type: place.type, payload_bytes: place.payload_bytes, put_s: place.time_s };
  }

  async reclaim(init: ReclaimInit): Promise<Reclaimed> {
    if (this.#isReclaiming) throw new RonError('conflict', `${this.name} is being compacted already`);
    this.#isReclaiming = true;
    try {
      const { log, index } = this;
      const flush = (): Promise<void> => this.#flusher.flush();
      const check = (kind: Kind, id: Uint8Array): Promise<unknown> => this.get(kind, id, init.signal);
      return await rewriteSegments({ ...init, log, index, recovery: this.#recovery, flush, check });
    } catch (error) {
      return rethrowDisk(error);
    } finally {
      this.#isReclaiming = false;
    }
  }

  scrub(after: ScrubCursor | undefined, signal: AbortSignal): Promise<ScrubStep | undefined> {
    const { log, index, name } = this;
    const flush = (): Promise<void> => this.#flusher.flush();
    const check = (kind: Kind, id: Uint8Array): Promise<unknown> => this.get(kind, id, signal);
    const onMark = (id: Uint8Array, what: string): void =>
      this.#events.onDamage?.({ volume: name, id_hex: hexOf(id), what });
    return scrubStep({ log, index, flush, check, onMark, signal }, after).catch(rethrowDisk);
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
    this.#flusher.stop();
    await this.#recovery.close();
    await this.log.sync(NEVER).catch(() => undefined);
    await this.#flusher.flush().catch(() => undefined);
    await this.log.close();
    await this.index.close();
    this.#lock?.[Symbol.dispose]();
  }

  #placeOf(kind: Kind, id: Uint8Array): Place | undefined {
    const place = this.index.get(kind, id);
    return place === undefined || isEnd(place.type) ? undefined : place;
  }

  async #contentOf(id: Uint8Array, signal: AbortSignal): Promise<Uint8Array> {
    const record = await this.get('content', id, signal);
    if (record === undefined) throw new RonError('not_found', `${this.name} does not hold ${hexOf(id)}`);
    return record.payload;
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
}

const stored = (record: LogRecord): StoredRecord => ({
  type: record.head.type,
  payload: record.payload,
  meta: record.meta,
});
