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
import { accessSync, constants } from 'node:fs';
import { join } from 'node:path';
import { blake3 } from '@napi-rs/blake-hash';
import { isRonError, NEVER, RonError, sched, type Timer } from '@ron/kernel';
import {
  decodeHeader,
  HEADER_BYTES,
  ID_BYTES,
  isReadOnly,
  realFileSystem,
  rethrowDisk,
  SegmentLog,
  type Damage,
  type FileSystem,
  type LogRecord,
} from '@ron/log';
import { BufferPool } from './buffer-pool.ts';
import { hexOf } from './hex.ts';
import { LmdbStore } from './lmdb-store.ts';
import { MemoryStore } from './memory-store.ts';
import { PlaceIndex, type Place, type PlaceStore } from './place-index.ts';
import { enter, enterNew, onDisk, placeOfHead } from './record-places.ts';
import { isEnd, RecordType, takesRoom } from './record-types.ts';
import { isInLog, isRecord, readAt, Recovery } from './recovery.ts';
import { Reserve } from './reserve.ts';
import { rewriteSegments } from './rewrite.ts';
import {
  conditionOf,
  type Held,
  type Kind,
  type NewRecord,
  type Reclaimed,
  type ReclaimInit,
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
/** Neighbouring records are read together up to this many bytes. */
const SPAN_BYTES_MAX = 1024 * 1024 + 64 * 1024;

/** For runs of neighbours on their way to somebody, of all volumes together. */
const RUNS = new BufferPool(SPAN_BYTES_MAX, 16);
const POOLED_BYTES_MIN = 128 * 1024;

export class LocalVolume implements Volume {
  readonly name: string;
  readonly domain: string;
  readonly dir: string;
  readonly log: SegmentLog;
  readonly index: PlaceIndex;
  readonly #events: VolumeEvents;
  readonly #recovery: Recovery;
  readonly #lock: Disposable | undefined;
  readonly #reserve: Reserve;
  readonly #flush_after_ms: number;
  #state: VolumeState = OK;
  #flushTimer: Timer | undefined;
  #flushFailure: unknown;
  #isReclaiming = false;
  #closing: Promise<void> | undefined;

  private constructor(init: LocalVolumeInit, log: SegmentLog, index: PlaceIndex, lock: Disposable | undefined) {
    this.dir = init.dir;
    this.name = init.name ?? init.dir;
    this.domain = init.domain ?? this.name;
    this.log = log;
    this.index = index;
    this.#lock = lock;
    this.#reserve = new Reserve(log.files.fs, init.dir);
    this.#events = init;
    this.#flush_after_ms = init.flush_after_ms ?? FLUSH_AFTER_MS;
    const onDamage = init.onDamage?.bind(init);
    this.#recovery = new Recovery({ volume: this.name, dir: init.dir, log, index, onDamage });
  }

  /** Refused while another process has the directory: two that write to the same segments would lose both their writes. */
  static async open(init: LocalVolumeInit): Promise<LocalVolume> {
    const lock = await lockOf(init);
    try {
      return await LocalVolume.#open(init, lock);
    } catch (error) {
      lock?.[Symbol.dispose]();
      throw error;
    }
  }

  static async #open(init: LocalVolumeInit, lock: Disposable | undefined): Promise<LocalVolume> {
    let opened: SegmentLog | undefined;
    // What is replayed is durable.
    const isDurable = (place: Place): boolean => opened?.isDurable(place.segment, place.offset + onDisk(place)) ?? true;
    const index = new PlaceIndex(await openStore(init), isDurable);
    const { applied } = index;
    let seq_last = applied?.seq ?? 0;
    const log = await SegmentLog.open({
      dir: init.dir,
      signal: init.signal,
      ...(init.fs && { fs: init.fs }),
      ...(init.segment_bytes !== undefined && { segment_bytes: init.segment_bytes }),
      ...(init.queue_bytes_max !== undefined && { queue_bytes_max: init.queue_bytes_max }),
      ...(applied && { from: applied.position, seq_known: applied.seq }),
      onRecord: (head, position, body) => {
        const place = placeOfHead(head, position);
        enter(index, head.id, place, body);
        seq_last = Math.max(seq_last, head.seq);
        if (!index.isFull) return undefined;
        const reached = { segment: place.segment, offset: place.offset + onDisk(place) };
        return index.flush({ ...REPLAY, applied: () => ({ position: reached, seq: seq_last }) });
      },
      ...(init.onLogDamage && { onDamage: init.onLogDamage }),
      onAppended: (records, places) => enterNew(index, records, places),
      onCut: ({ segment, offset }) => index.forget((place) => place.segment === segment && place.offset >= offset),
    });
    opened = log;
    const volume = new LocalVolume(init, log, index, lock);
    await volume.#reserve.measure();
    // On a disk that takes no names reads still work; what is damaged is then not kept aside.
    await log.files.fs.makeDir(join(init.dir, 'quarantine')).catch(() => undefined);
    // The log has it all: an index that cannot be written now is written later.
    await volume.#flush().catch(() => volume.#flushSoon());
    return volume;
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
      throw new RonError('not_ready', `the index of ${this.name} cannot be written`, {
        cause: this.#flushFailure,
        retry_after_ms: 1000,
      });
    }
    // Nothing may wait before this: who decided to put something, and had it ordered in the same step, is in that order.
    await this.#watchState(this.#append(records, signal, durability));
    if (this.index.isFull) await this.#flush().catch(() => undefined);
    else this.#flushSoon();
  }

  async #append(records: readonly NewRecord[], signal: AbortSignal, durability: 'now' | 'later'): Promise<void> {
    const bytes = records.reduce((sum, { type, payload }) => (takesRoom(type) ? sum + payload.length : sum), 0);
    if (bytes > 0 && this.#reserve.isReached(bytes)) {
      const kept = `its last ${this.#reserve.bytes} bytes are kept for what makes room again (removals, compaction)`;
      throw new RonError('storage_full', `the disk is full: ${kept}`, { retry_after_ms: 1000 });
    }
    await this.log.append(records, signal, { durable: durability === 'now' });
    this.#reserve.wrote(bytes);
  }

  async sync(signal: AbortSignal): Promise<void> {
    await this.#watchState(this.log.sync(signal));
  }

  isDurable(kind: Kind, id: Uint8Array): boolean {
    const place = this.#placeOf(kind, id);
    return place !== undefined && place.isDamaged !== true && this.#isDurableAt(place);
  }

  async get(kind: Kind, id: Uint8Array, signal: AbortSignal): Promise<StoredRecord | undefined> {
    const place = this.#placeOf(kind, id);
    if (place === undefined) return undefined;
    signal.throwIfAborted();
    const now = this.#readNow(kind, id, place);
    if (now !== undefined) return now;
    const record = await readAt(this.log, place);
    if (record !== undefined && isRecord(record, kind, id)) return stored(record);
    try {
      return stored(await this.#recovery.recover(kind, id, place, signal));
    } finally {
      this.#flushSoon();
    }
  }

  getNow(kind: Kind, id: Uint8Array): StoredRecord | undefined {
    const place = this.#placeOf(kind, id);
    return place === undefined ? undefined : this.#readNow(kind, id, place);
  }

  #readNow(kind: Kind, id: Uint8Array, place: Place): StoredRecord | undefined {
    if (!isInLog(this.log, place)) return undefined;
    const record = this.log.readNow(place, place.payload_bytes, place.meta_bytes);
    return record !== undefined && isRecord(record, kind, id) ? stored(record) : undefined;
  }

  async *getMany(ids: readonly Uint8Array[], signal: AbortSignal): AsyncGenerator<readonly Uint8Array[], void, void> {
    let next = 0;
    while (next < ids.length) {
      signal.throwIfAborted();
      const places = this.#runFrom(ids, next);
      const buffer = this.#bufferFor(places);
      try {
        const run = await this.#readRun(places, buffer);
        const contents: Uint8Array[] = [];
        for (const place of places) {
          const id = ids[next]!;
          contents.push(contentIn(run, place, id) ?? (await this.#contentOf(id, signal)));
          next += 1;
        }
        yield contents;
      } finally {
        // Whoever asks for the next batch, or for no more, is done with this one.
        if (buffer.length === RUNS.bytes) RUNS.give(buffer);
      }
    }
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
    if (after === undefined) await this.#flush();
    const held: Held[] = [];
    for (const [id, { type, payload_bytes, time_s }] of this.index.entries(kind, after)) {
      if (isEnd(type)) continue;
      held.push({ id: Uint8Array.from(id), type, payload_bytes, put_s: time_s });
      if (held.length === count) break;
    }
    return held;
  }

  async listIds(kind: Kind, after: Uint8Array | undefined, into: Buffer): Promise<number> {
    if (after === undefined) await this.#flush();
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
      const flush = (): Promise<void> => this.#flush();
      const check = (kind: Kind, id: Uint8Array): Promise<unknown> => this.get(kind, id, init.signal);
      return await rewriteSegments({ ...init, log, index, recovery: this.#recovery, flush, check });
    } catch (error) {
      return rethrowDisk(error);
    } finally {
      this.#isReclaiming = false;
    }
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
    await this.#recovery.close();
    await this.#flush().catch(() => undefined);
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
      const fits = bytes + onDisk(place) <= SPAN_BYTES_MAX && isInLog(this.log, place);
      if (!isNext || (run.length > 0 && !fits)) break;
      run.push(place);
      bytes += onDisk(place);
    }
    return run;
  }

  #bufferFor(run: readonly Place[]): Buffer {
    const bytes = isInLog(this.log, run[0]!) ? bytesOf(run) : 0;
    return bytes >= POOLED_BYTES_MIN && bytes <= RUNS.bytes ? RUNS.take() : Buffer.allocUnsafeSlow(bytes);
  }

  /** Choosing the run and leasing its segment are one step: compaction cannot come between. */
  async #readRun(run: readonly Place[], buffer: Buffer): Promise<Run> {
    const { segment, offset } = run[0]!;
    if (!isInLog(this.log, run[0]!)) return { bytes: buffer.subarray(0, 0), offset, salt: 0 };
    const salt = this.log.files.saltOf(segment);
    const bytes = bytesOf(run);
    const { files } = this.log;
    const count = files.readNow(segment, buffer, bytes, offset) ?? (await files.read(segment, buffer, bytes, offset));
    return { bytes: buffer.subarray(0, count), offset, salt };
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
    if (this.#flush_after_ms === Infinity) return;
    this.#flushTimer = sched.timer(
      this.#flush_after_ms,
      () => {
        this.#flushTimer = undefined;
        // A failed flush leaves the entries in memory; the next one tries again, and the log has them all.
        void this.#flush().catch(() => this.#flushSoon());
      },
      'index.flush',
    );
  }

  async #flush(): Promise<void> {
    try {
      await this.index.flush({
        applied: () => ({ position: this.log.tail, seq: this.log.seq }),
        syncLog: () => this.log.sync(NEVER),
        isDurable: (place) => place.isDamaged === true || this.#isDurableAt(place),
      });
      this.#flushFailure = undefined;
    } catch (error) {
      this.#flushFailure = error;
      throw error;
    }
  }

  #isDurableAt(place: Place): boolean {
    return this.log.isDurable(place.segment, place.offset + onDisk(place));
  }
}

const bytesOf = (run: readonly Place[]): number => run.reduce((sum, place) => sum + onDisk(place), 0);

/** Neighbouring records as they were read. */
interface Run {
  readonly bytes: Buffer;
  /** Where in the segment it begins. */
  readonly offset: number;
  readonly salt: number;
}

/** What is replayed is durable: the log sees to it before. */
const REPLAY = { syncLog: (): Promise<void> => Promise.resolve(), isDurable: (): boolean => true };

/** The stored index, unless it knows more than the log holds: then the log decides, and somebody has to hear of it. */
async function openStore(init: LocalVolumeInit): Promise<PlaceStore> {
  if (init.places !== undefined) return init.places;
  const opened = openLmdb(init.dir);
  if (opened === undefined) return new MemoryStore();
  const { store, rebuilt } = opened;
  if (rebuilt !== undefined) init.onRebuild?.(rebuilt);
  const { applied } = store;
  if (applied === undefined || (await SegmentLog.reaches(init.dir, applied.position, init.fs))) return store;
  const { segment, offset } = applied.position;
  init.onRebuild?.(`segment ${segment} ends before offset ${offset}, which was durable: records are lost`);
  return await store.startAnew();
}

/** Nothing to hold where nobody can write, nor on a disk that no other process can see. */
async function lockOf({ dir, fs = realFileSystem }: LocalVolumeInit): Promise<Disposable | undefined> {
  if (fs.lock === undefined || !isWritable(dir)) return undefined;
  await fs.makeDir(dir);
  const lock = fs.lock(join(dir, 'lock'));
  if (lock === undefined) throw new RonError('conflict', `another process has ${dir} open: stop it first`);
  return lock;
}

/** Undefined when the directory is read-only. */
function openLmdb(dir: string): ReturnType<typeof LmdbStore.open> | undefined {
  return isWritable(dir) ? LmdbStore.open(join(dir, 'index')) : undefined;
}

/** Asked before: what is thrown by removing a directory on a disk that takes no writes has no code. */
function isWritable(dir: string): boolean {
  try {
    accessSync(dir, constants.W_OK);
    return true;
  } catch (error) {
    return !isReadOnly(error);
  }
}

const stored = (record: LogRecord): StoredRecord => ({
  type: record.head.type,
  payload: record.payload,
  meta: record.meta,
});

/** The content at `place` in a run; undefined when it is not what `id` says. */
function contentIn(run: Run, place: Place, id: Uint8Array): Uint8Array | undefined {
  const at = place.offset - run.offset;
  const head = decodeHeader(run.bytes, at, run.salt);
  if (head === undefined || head.payload_bytes !== place.payload_bytes) return undefined;
  const payload = run.bytes.subarray(at + HEADER_BYTES, at + HEADER_BYTES + place.payload_bytes);
  if (payload.length < place.payload_bytes) return undefined;
  return Buffer.compare(blake3(payload), id) === 0 ? payload : undefined;
}
