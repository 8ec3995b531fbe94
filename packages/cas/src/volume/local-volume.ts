/**
 * A volume in a directory: a segment log that is the source of truth, and an index of it that can be rebuilt.
 *
 *     DIR/segments/*.seg   the log          DIR/index/        see index/run-index.ts; rebuilt from the log when damaged
 *     DIR/quarantine/      damaged records, never deleted
 *     DIR/lock             held while a process has the volume open
 *     DIR/superblock       the identity of the volume; see superblock.ts
 *
 * Contract: as `Volume`; reads as in record-reader.ts. `has`, `isDurable`, `isPinned`, `wasRemoved` and `typeOf` answer from memory; no call blocks the event
 * loop on a disk.
 * Bound: the log's queue, the index's pending entries and its part in memory. The last
 * 256 MiB of a disk (a sixteenth of a small one) are reserved for compaction: see `Reserve` of @ron/log.
 * Cancellation: a put that is cancelled while it waits was not written; reads stop between two reads.
 */
import { join } from 'node:path';
import { assert, isRonError, NEVER, RonError, sched, type Timer } from '@ron/kernel';
import {
  ID_BYTES,
  realFileSystem,
  Reserve,
  rethrowDisk,
  type Damage,
  type FileSystem,
  type SegmentLog,
} from '@ron/log';
import { hexOf } from './hex.ts';
import { IndexFlusher } from '../index/index-flusher.ts';
import { isWritableDir, lockOf, openIndexedLog, type IndexedLog } from '../index/open-index.ts';
import type { PlaceIndex } from '../index/place-index.ts';
import { rebuildIndex } from '../index/rebuild.ts';
import { namesShards } from '../index/record-places.ts';
import { heldAt, listHeld, listIds } from '../index/listing.ts';
import { RecordReader } from './record-reader.ts';
import { isRecord, readAt } from './verify-record.ts';
import { Quarantine } from './quarantine.ts';
import { isEnd, RecordType, takesRoom } from './record-types.ts';
import { rewriteSegments } from '../compaction/rewrite.ts';
import { scrubStep } from './scrub-step.ts';
import type { Superblock } from './superblock.ts';
import { identityFromNote, identityOnDisk, ROSTER_NOTE_ID, VolumeIdentity } from './volume-identity.ts';
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
  /** Default: the name, so that every volume is its own domain. */
  domain?: string;
  fs?: FileSystem;
  /** Called with the identity on disk before anything is written. Throws to refuse the directory. */
  accept?(identity: Superblock): void;
  segment_bytes?: number;
  queue_bytes_max?: number;
  onLogDamage?: (damage: Damage) => void;
  /** Called with the reason when the index is discarded and rebuilt from the log. */
  onRebuild?(why: string): void;
  /** The index is flushed this long after a change. Default 3 s; Infinity: only when it is full, and at close. */
  flush_after_ms?: number;
  /** The file system of the index. Default: that of the log, or memory when the directory is read-only. */
  indexFs?: FileSystem;
  signal: AbortSignal;
}

const OK: VolumeState = { condition: 'ok', reason: '' };
const FLUSH_AFTER_MS = 3000;
/** The delay before a failed rebuild of the index is retried. */
const REBUILD_AGAIN_MS = 10_000;

export class LocalVolume implements Volume {
  readonly name: string;
  readonly domain: string;
  readonly isDoneWithPayloads = true;
  readonly dir: string;
  readonly log: SegmentLog;
  readonly index: PlaceIndex;
  readonly isDoubtful: boolean;
  readonly #events: VolumeEvents;
  readonly #onRebuild: ((why: string) => void) | undefined;
  readonly #indexFs: FileSystem;
  readonly #quarantine: Quarantine;
  readonly #reader: RecordReader;
  readonly #lock: Disposable | undefined;
  readonly #reserve: Reserve;
  readonly #flusher: IndexFlusher;
  readonly #identity: VolumeIdentity;
  #state: VolumeState = OK;
  #reclaiming: Promise<Reclaimed> | undefined;
  #rebuilding: Promise<void> | undefined;
  #rebuildLater: Timer | undefined;
  /** Ends compaction before the index is rebuilt, and the rebuild when the volume is closed. */
  readonly #stop = { reclaim: new AbortController(), rebuild: new AbortController() };
  #closing: Promise<void> | undefined;

  private constructor(
    init: LocalVolumeInit,
    { log, index, indexFs, isDoubtful }: IndexedLog,
    identity: VolumeIdentity,
    lock: Disposable | undefined,
  ) {
    this.dir = init.dir;
    this.#identity = identity;
    this.name = init.name ?? init.dir;
    this.domain = init.domain ?? this.name;
    this.log = log;
    this.index = index;
    this.isDoubtful = isDoubtful;
    this.#lock = lock;
    this.#reserve = new Reserve(async () => await log.files.fs.room?.(init.dir));
    this.#events = init;
    this.#onRebuild = init.onRebuild?.bind(init);
    this.#indexFs = indexFs;
    this.#flusher = new IndexFlusher({ log, index, flush_after_ms: init.flush_after_ms ?? FLUSH_AFTER_MS });
    const onDamage = init.onDamage?.bind(init);
    this.#quarantine = new Quarantine({ volume: this.name, dir: init.dir, log, index, onDamage });
    const { name } = this;
    this.#reader = new RecordReader({ name, log, index, quarantine: this.#quarantine, flusher: this.#flusher });
  }

  /** Refuses a directory that another process has open. */
  static async open(init: LocalVolumeInit): Promise<LocalVolume> {
    const isWritable = await isWritableDir(init.dir, init.fs);
    const lock = await lockOf(init, isWritable);
    let indexed: IndexedLog | undefined;
    try {
      const { dir, fs = realFileSystem } = init;
      const found = await identityOnDisk(fs, dir);
      if (found !== undefined) init.accept?.(found);
      const known = found && new VolumeIdentity(fs, dir, found);
      await known?.begin();
      let volume: LocalVolume | undefined;
      const onIndexDamage = ({ message }: Error): void =>
        volume === undefined ? undefined : volume.#rebuildIndex(message);
      indexed = await openIndexedLog({ ...init, isWritable, onIndexDamage });
      const identity = known ?? new VolumeIdentity(fs, dir, await identityInLog(init, indexed));
      if (known === undefined) await identity.begin();
      volume = new LocalVolume(init, indexed, identity, lock);
      await volume.#begin();
      return volume;
    } catch (error) {
      await indexed?.log.close().catch(() => undefined);
      await indexed?.index.close().catch(() => undefined);
      lock?.[Symbol.dispose]();
      throw error;
    }
  }

  async #begin(): Promise<void> {
    await this.#reserve.measure();
    // Without this directory reads still work; damaged records are then not copied.
    await this.log.files.fs.makeDir(join(this.dir, 'quarantine')).catch(() => undefined);
    // The log has all entries: an index that cannot be written now is written later.
    await this.#flusher.flush().catch(() => this.#flusher.again());
  }

  get id(): string {
    return this.#identity.id;
  }

  get epoch(): number {
    return this.#identity.epoch;
  }

  get epoch_before(): number {
    return this.#identity.epoch_before;
  }

  get state(): VolumeState {
    return this.#state;
  }

  async put(records: readonly NewRecord[], signal: AbortSignal, durability: 'now' | 'later' = 'now'): Promise<void> {
    if (this.index.isOverfull) {
      this.#flusher.again();
      throw new RonError('not_ready', `the index of ${this.name} cannot be written`, {
        cause: this.#flusher.failure,
        retry_after_ms: 1000,
      });
    }
    if (!this.#identity.isClaimed) return await this.#watchState(this.#refuseUnclaimed());
    // No await before this call: puts are ordered by the synchronous steps in which their callers made them.
    await this.#watchState(this.#append(records, signal, durability));
    if (this.index.isFull) await this.#flusher.flush().catch(() => this.#flusher.again());
    else this.#flusher.soon();
  }

  /** The epoch could not be claimed when the volume was opened. Tries again for later puts. */
  async #refuseUnclaimed(): Promise<never> {
    const { failure } = this.#identity;
    void this.#identity.tryClaim();
    throw failure ?? new RonError('not_ready', `${this.name} is not open for writing`, { retry_after_ms: 1000 });
  }

  async #append(records: readonly NewRecord[], signal: AbortSignal, durability: 'now' | 'later'): Promise<void> {
    assert(
      records.every(({ id }) => id.length === ID_BYTES),
      'a record id has 32 bytes',
    );
    const bytes = records.reduce((sum, { type, payload }) => (takesRoom(type) ? sum + payload.length : sum), 0);
    if (bytes > 0 && this.#reserve.isReached(bytes)) {
      const kept = `its last ${this.#reserve.bytes} bytes are reserved for removals and compaction`;
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
    const tag = this.index.tag(kind, id);
    return tag !== undefined && !isEnd(tag.type) && !tag.isDamaged;
  }

  get(kind: Kind, id: Uint8Array, signal: AbortSignal): Promise<StoredRecord | undefined> {
    return this.#reader.get(kind, id, signal);
  }

  getNow(kind: Kind, id: Uint8Array): StoredRecord | undefined {
    return this.#reader.getNow(kind, id);
  }

  getMany(ids: readonly Uint8Array[], signal: AbortSignal): AsyncGenerator<readonly Uint8Array[], void, void> {
    return this.#reader.getMany(ids, signal);
  }

  has(kind: Kind, id: Uint8Array): boolean {
    return this.typeOf(kind, id) !== undefined;
  }

  isPinned(id: Uint8Array): boolean {
    return this.index.tag('pin', id)?.type === RecordType.pin;
  }

  wasRemoved(id: Uint8Array): boolean {
    return this.index.tag('object', id)?.type === RecordType.remove;
  }

  typeOf(kind: Kind, id: Uint8Array): number | undefined {
    const type = this.index.tag(kind, id)?.type;
    return type === undefined || isEnd(type) ? undefined : type;
  }

  async putTime_s(kind: Kind, id: Uint8Array): Promise<number | undefined> {
    return (await this.#reader.placeOf(kind, id))?.time_s;
  }

  async inventory(kind: Kind, after: Uint8Array | undefined, count: number): Promise<Held[]> {
    if (after === undefined) await this.#flusher.flush();
    return await listHeld(this.index, kind, after, count);
  }

  async listIds(kind: Kind, after: Uint8Array | undefined, into: Buffer): Promise<number> {
    if (after === undefined) await this.#flusher.flush();
    // No content is ever entered as ended or damaged.
    return await (kind === 'content' ? this.index.ids(kind, after, into) : listIds(this.index, kind, after, into));
  }

  async held(kind: Kind, id: Uint8Array): Promise<Held | undefined> {
    const place = await this.#reader.placeOf(kind, id);
    return place && heldAt(id, place);
  }

  async reclaim(init: ReclaimInit): Promise<Reclaimed> {
    if (this.#reclaiming !== undefined) throw new RonError('conflict', `${this.name} is already being compacted`);
    if (this.#rebuilding !== undefined) {
      throw new RonError('not_ready', `the index of ${this.name} is being rebuilt`, { retry_after_ms: 1000 });
    }
    const signal = AbortSignal.any([init.signal, this.#stop.reclaim.signal]);
    const { log, index } = this;
    const flush = (): Promise<void> => this.#flusher.flush();
    const check = (kind: Kind, id: Uint8Array): Promise<unknown> => this.get(kind, id, signal);
    const rewrite = { ...init, signal, log, index, quarantine: this.#quarantine, flush, check };
    this.#reclaiming = this.#identity.claim().then(() => rewriteSegments(rewrite));
    try {
      return await this.#reclaiming;
    } catch (error) {
      return rethrowDisk(error);
    } finally {
      this.#reclaiming = undefined;
    }
  }

  /** Rebuilds a damaged index from the log, beside the damaged one. */
  #rebuildIndex(why: string): void {
    if (this.#rebuilding !== undefined || this.#closing !== undefined) return;
    this.#onRebuild?.(why);
    this.#stop.reclaim.abort(new RonError('not_ready', `the index of ${this.name} is being rebuilt`));
    this.#rebuilding = this.#rebuild().then(
      () => void (this.#rebuilding = undefined),
      () => {
        this.#rebuilding = undefined;
        // A full disk may have room again by then.
        if (this.#closing === undefined) {
          this.#rebuildLater = sched.timer(REBUILD_AGAIN_MS, () => this.#rebuildIndex(why), 'index.rebuild');
        }
      },
    );
  }

  async #rebuild(): Promise<void> {
    await this.#reclaiming?.catch(() => undefined);
    this.#stop.reclaim = new AbortController();
    const { log, index, dir } = this;
    await rebuildIndex({ log, index, dir, fs: this.#indexFs, signal: this.#stop.rebuild.signal });
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
    const { segments, bytes: used_bytes } = this.log.files.totals();
    return { used_bytes, segments, contents: this.index.count('content') };
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
    this.#rebuildLater?.cancel();
    this.#stop.rebuild.abort(new RonError('not_ready', `${this.name} is being closed`));
    await this.#rebuilding;
    await this.log.sync(NEVER).catch(() => undefined);
    await this.#flusher.flush().catch(() => undefined);
    // [storage I-11]
    await this.log.close();
    await this.index.close();
    this.#lock?.[Symbol.dispose]();
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
    const isSame = state.condition === this.#state.condition && state.reason === this.#state.reason;
    // Each failure is a new object, even if its reason is the same: a probe may have disproved the one before.
    this.#state = state;
    if (!isSame) this.#events.onState?.(state);
  }
}

/** The identity of a directory that has segments and no superblock. */
async function identityInLog(init: LocalVolumeInit, { log, index }: IndexedLog): Promise<Superblock> {
  const place = await index.get('note', ROSTER_NOTE_ID);
  const record = place === undefined ? undefined : await readAt(log, place, 'note');
  const note = record !== undefined && isRecord(record, 'note', ROSTER_NOTE_ID) ? record.payload : undefined;
  return identityFromNote(note, init.name ?? init.dir);
}
