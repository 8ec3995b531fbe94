/**
 * A cache on disk: objects by name, within a bound in bytes. The metadata of a name is a note beside its object.
 *
 * Contract: an object is found by its name from the end of `keep` until it is evicted, removed, or found damaged; a restart
 * keeps every name that has a note. A note and a small object are put in one step, and names with the same bytes share one
 * object, which is removed after the last of them. `removeWhere` makes names unreadable in the synchronous step of its call,
 * even those whose `keep` is in progress, and walks through the names in steps afterwards. The oldest names are evicted first; one that was used since its last turn gets
 * another. Eviction and compaction take no lock that a look-up waits for, and an object stays until its readers have ended.
 * `run` is the one task that evicts, and the only writer of removals.
 * Bound: `bytes_max` for the segments and the index on disk, of which about two thirds hold objects: the rest is garbage that
 * waits for compaction, and its working space. `names_bytes_max` of memory for names, and as much for names whose removal waits for
 * the disk; `REMOVALS_MAX` removals in progress. Overflow: eviction; while that lags behind, or the disk refuses writes, `keep`
 * refuses new names and `writer` returns undefined. A removal too many: `busy`.
 * Cancellation: by the signals. A cancelled `keep` leaves no name.
 */
import { blake3 } from '@napi-rs/blake-hash';
import { isRonError, KeyedMutex, NEVER, Notify, RonError, sched, sleep, Watch } from '@ron/kernel';
import { recordBytes } from '@ron/log';
import { addressBytes, formatAddress, type Address } from '@ron/proto';
import type { Compactor } from '../compaction/compactor.ts';
import type { ObjectStore } from '../objects/object-store.ts';
import type { StoredObject } from '../objects/stored-object.ts';
import { RecordType } from '../volume/record-types.ts';
import type { NewRecord } from '../volume/volume.ts';
import { EvictingWriter } from './evicting-writer.ts';
import { loadNames, type LoadedName } from './load-names.ts';
import { nameBytes, NamedObjects, type NamedObject, type ObjectRef } from './named-objects.ts';

/** The object that a note refers to, and its name. */
export interface NoteTarget {
  readonly name: string;
  readonly address: Address;
  readonly size: number;
}

export interface EvictingStoreInit {
  /** On a volume that has no other user. */
  store: ObjectStore;
  compactor: Pick<Compactor, 'run'>;
  bytes_max: number;
  /** Memory for names. */
  names_bytes_max: number;
  /** That of the volume: compaction needs room for two segments. */
  segment_bytes: number;
  /** The bytes of the volume besides its segments. Default: none. */
  indexBytes?: () => number;
  /** The target of a note; undefined for a damaged or foreign one, which counts as absent. */
  parse: (note: Uint8Array) => NoteTarget | undefined;
  /** Whether an outer cache keeps the name, so that its use is not seen here. Default: never. */
  isHot?(name: string): boolean;
  /** Called when a step of `run` fails; it is tried again. Must not throw. */
  onFailure?(error: unknown): void;
}

export interface KeepInit extends NoteTarget {
  readonly note: Uint8Array;
  /** The object, if it may not be stored yet. */
  readonly bytes: Uint8Array | undefined;
}

export interface FoundObject {
  readonly note: Uint8Array;
  readonly object: StoredObject;
  /** Keeps the object until the result is disposed. Without it, a large one stays for a few seconds. */
  hold(): Disposable;
  /** Whether the name still refers to it. */
  isCurrent(): boolean;
}

/** Shares of the bytes that writers may use. Names are evicted above the first, down to the second. */
const LIVE_MAX = 0.7;
const LIVE_TARGET = 0.65;
/** Large objects without a name, which may be about to get one, or to be read. */
const UNNAMED_MAX = 0.1;
/** Compaction starts above this share. Then at most 0.82 of an average segment is live, so some have less than `LIVE_RATIO`. */
const COMPACT_ABOVE = 0.85;
export const LIVE_RATIO = 0.85;
const PASS_EVERY_MS = 1000;
const COMPACT_AGAIN_MS = 10_000;
const EVICT_STEP = 64;
const REMOVE_BATCH = 256;
const REMOVALS_MAX = 64;
/** Names that a removal examines in one turn of the event loop. */
const WALK_STEP = 1024;
const FIND_ATTEMPTS = 3;
const NO_BYTES = new Uint8Array(0);
/** Written while the disk is refused, to find out whether it works again. Compaction reclaims it. */
const PROBE = Buffer.alloc(512, 'probe');

interface Keep {
  readonly name: string;
  /** The name was removed since. */
  isVoid: boolean;
}

/** The id of the note of a name. */
export const noteIdOf = (name: string): Uint8Array => blake3(Buffer.from(name, 'utf8'));

export class EvictingStore {
  readonly #init: EvictingStoreInit;
  readonly #named: NamedObjects;
  readonly #admit_max: number;
  readonly #keeps = new Set<Keep>();
  readonly #keepsByName = new KeyedMutex('cache.keep', { keys_max: 4096, waiters_max: 1024 });
  /** Names whose notes are to be removed, the first of them first. They are not found. */
  readonly #leavingNames = new Set<string>();
  #leaving_bytes = 0;
  /** Notes whose removal is durable. */
  #flushed_total = 0;
  /** Objects whose removal is being written. */
  readonly #leaving = new Set<Address>();
  /** Removals that have not examined every name yet. */
  readonly #removals = new Set<Removal>();
  #removals_total = 0;
  readonly #wake = new Notify('cache.evict');
  readonly #flushed = new Watch<undefined>('cache.removed', undefined);
  #isLoaded = false;
  /** Bytes of writers in progress that are not on disk yet. */
  #reserved_bytes = 0;
  #compacting: Promise<void> | undefined;
  #compacted_ms = -Infinity;

  constructor(init: EvictingStoreInit) {
    this.#init = init;
    this.#admit_max = Math.max(0, init.bytes_max - 2 * init.segment_bytes);
    const { chunk_bytes } = init.store;
    this.#named = new NamedObjects({ chunk_bytes, unnamed_bytes_max: UNNAMED_MAX * this.#admit_max });
  }

  /** Names that are known; all of them once they are loaded. */
  get size(): number {
    return this.#named.size;
  }

  get isLoaded(): boolean {
    return this.#isLoaded;
  }

  /** Bytes on disk. */
  get disk_bytes(): number {
    return this.#init.store.volume.stats().used_bytes + (this.#init.indexBytes?.() ?? 0);
  }

  has(name: string): boolean {
    return this.#get(name) !== undefined;
  }

  /** The object and the note of a name. Damage counts as absence. Throws `not_ready` when the disk fails. */
  async find(name: string, signal: AbortSignal): Promise<FoundObject | undefined> {
    for (let attempt = 0; attempt < FIND_ATTEMPTS; attempt++) {
      const entry = this.#get(name) ?? (await this.#adopt(name, signal));
      if (entry === undefined) return undefined;
      this.#named.use(entry);
      const found = await this.#read(entry, signal);
      // It may have been replaced or removed while it was read, or its new note was read before `keep` has ended.
      if (this.#get(name) === entry) {
        if (found !== undefined) return found;
        if (!this.#isKeeping(name)) return this.#drop(name);
      }
      await sched.pause('cache.find');
    }
    return undefined;
  }

  /** The note of a name whose object is there. Does not count as a use. */
  async peek(name: string, signal: AbortSignal): Promise<Uint8Array | undefined> {
    const entry = this.#get(name) ?? (await this.#adopt(name, signal));
    const found = entry && (await this.#read(entry, signal));
    return found?.isCurrent() === true ? found.note : undefined;
  }

  /** An object that a writer has just finished, before it has a name. */
  async openObject(address: Address, signal: AbortSignal): Promise<Pick<FoundObject, 'object' | 'hold'> | undefined> {
    const object = await this.#init.store.open(address, signal);
    if (object === undefined) return undefined;
    return { object, hold: () => this.#named.holdAddress(address) };
  }

  /** A writer for a large object, which is named by `keep`. Undefined if `bytes_max` more may not fit. */
  writer(bytes_max: number): EvictingWriter | undefined {
    if (!this.#hasRoom(bytes_max)) return undefined;
    this.#reserved_bytes += bytes_max;
    return new EvictingWriter({
      writer: this.#init.store.writer(),
      bytes_max,
      isLeaving: this.#isLeaving,
      onWritten: (bytes) => (this.#reserved_bytes -= bytes),
      claim: (address, size) => {
        const object = this.#named.claim(address, size);
        return { [Symbol.dispose]: () => this.#named.release(object) };
      },
    });
  }

  /**
   * Names an object. Resolves when note and object are durable; false if they were not stored: there is no room, the object is
   * not stored and no bytes were given, or the name was removed meanwhile.
   */
  async keep(init: KeepInit, signal: AbortSignal): Promise<boolean> {
    const keep = { name: init.name, isVoid: false };
    this.#keeps.add(keep);
    try {
      return await this.#keepsByName.run(init.name, signal, (mine) => this.#keep(keep, init, mine));
    } finally {
      this.#keeps.delete(keep);
      this.#flushed.set(undefined);
      if (this.#isOver(LIVE_MAX) || this.disk_bytes > COMPACT_ABOVE * this.#admit_max) this.#wake.notifyOne();
    }
  }

  /**
   * Removes names, in the synchronous step of the call. Resolves with their number when the removal is durable; it goes on if
   * the signal aborts.
   */
  async removeWhere(matches: (name: string) => boolean, signal: AbortSignal): Promise<number> {
    if (this.#removals.size >= REMOVALS_MAX) {
      throw new RonError('busy', 'too many removals are in progress', { retry_after_ms: 1000 });
    }
    this.#removals_total += 1;
    const removal: Removal = { matches, at: this.#removals_total, count: 0, isWalked: false };
    this.#removals.add(removal);
    const voided = this.#voidKeeps(matches);
    await this.#walk(removal);
    await this.#untilDurable(voided, signal);
    return removal.count;
  }

  /** Removes one name, in the step of the call; the evictor makes it durable. */
  remove(name: string): void {
    this.#voidKeeps((each) => each === name);
    // Before the names are loaded, there may be a note.
    const mayHaveNote = !this.#isLoaded && this.#leaving_bytes <= this.#init.names_bytes_max;
    if (this.has(name) || mayHaveNote) this.#drop(name);
  }

  /** Loads the names, evicts, writes removals and compacts until `stopping` aborts. */
  async run(stopping: AbortSignal): Promise<void> {
    while (!stopping.aborted) {
      try {
        await this.pass(stopping);
        await this.#wake.notified(stopping, { within_ms: PASS_EVERY_MS });
      } catch (error) {
        if (stopping.aborted) break;
        this.#init.onFailure?.(error);
        await sleep(PASS_EVERY_MS, stopping).catch(() => undefined);
      }
    }
    await this.#compacting;
    await this.#flush(NEVER).catch((error: unknown) => this.#init.onFailure?.(error));
  }

  /** One round of `run`. */
  async pass(signal: AbortSignal): Promise<void> {
    const { volume } = this.#init.store;
    if (volume.state.condition !== 'ok') {
      await volume.put([{ type: RecordType.chunk, id: blake3(PROBE), payload: PROBE }], signal);
    }
    await this.#flush(signal);
    if (!this.#isLoaded) await this.#load(signal);
    await this.#evict(signal);
    this.#compactIfDue(signal);
  }

  async #load(signal: AbortSignal): Promise<void> {
    const { store, parse } = this.#init;
    await loadNames(
      { volume: store.volume, parse, signal },
      (loaded) => this.#addLoaded(loaded),
      (id, type) => {
        const address = formatAddress(id);
        // An object without a name: a crash came before its note.
        if (this.#named.hasObject(address) || this.#leaving.has(address)) return;
        const size = type === RecordType.object ? 0 : store.chunk_bytes + 1;
        this.#named.release(this.#named.claim(address, size));
      },
    );
    this.#isLoaded = true;
    this.#endRemovals();
    this.#flushed.set(undefined);
  }

  /** Names from before the start. Those that were set or removed since are newer. */
  #addLoaded({ name, address, size, note_bytes }: LoadedName): void {
    if (this.#get(name) !== undefined || this.#leavingNames.has(name) || this.#isKeeping(name)) return;
    const removals = [...this.#removals].filter(({ matches }) => matches(name));
    for (const removal of removals) removal.count += 1;
    if (removals.length > 0) this.#drop(name);
    else this.#named.set(name, this.#named.claim(address, size), note_bytes, this.#removals_total);
  }

  /** While names are being loaded, the note decides. */
  async #adopt(name: string, signal: AbortSignal): Promise<NamedObject | undefined> {
    if (this.#isLoaded || this.#leavingNames.has(name)) return undefined;
    const { store, parse } = this.#init;
    const note = await store.volume.get('note', noteIdOf(name), signal).catch(absentIfDamaged);
    const target = note && parse(note.payload);
    if (target?.name === name) this.#addLoaded({ ...target, note_bytes: noteBytes(note!.payload), put_s: 0 });
    return this.#get(name);
  }

  async #read(entry: NamedObject, signal: AbortSignal): Promise<FoundObject | undefined> {
    const { store, parse } = this.#init;
    const { address } = entry.object;
    const note = await store.volume.get('note', noteIdOf(entry.name), signal).catch(absentIfDamaged);
    const target = note && parse(note.payload);
    if (target?.name !== entry.name || target.address !== address) return undefined;
    const object = await store.open(address, signal).catch(absentIfDamaged);
    if (object?.size !== target.size) return undefined;
    return {
      note: note!.payload,
      object,
      hold: () => this.#named.hold(entry.object),
      isCurrent: () => this.#get(entry.name) === entry,
    };
  }

  async #keep(keep: Keep, init: KeepInit, signal: AbortSignal): Promise<boolean> {
    const { name, address, size, bytes } = init;
    const { store } = this.#init;
    const note_bytes = noteBytes(init.note);
    const new_bytes = note_bytes + (bytes === undefined || store.has(address) ? 0 : bytes.length);
    // While the removal of the name waits to be written, a new note could be removed with it.
    if (keep.isVoid || this.#leavingNames.has(name)) return false;
    const isAbsent = bytes === undefined && (this.#leaving.has(address) || !store.has(address));
    // A refused disk stores nothing: the names of all fills would wait for their removal.
    const isRefused = store.volume.state.condition !== 'ok' || this.#leaving_bytes > this.#init.names_bytes_max;
    if (isAbsent || isRefused || !this.#hasRoom(new_bytes)) {
      // Not found, rather than found as it was before.
      if (this.has(name)) this.#drop(name);
      return false;
    }
    const object = this.#named.claim(address, size);
    this.#reserved_bytes += new_bytes;
    let isSet = false;
    try {
      await this.#put(init, signal);
      if (keep.isVoid) return false;
      const wasSet = this.has(name);
      this.#named.set(name, object, note_bytes, this.#removals_total);
      isSet = true;
      // The object of the former note may be free.
      if (wasSet) this.#wake.notifyOne();
      return true;
    } finally {
      this.#reserved_bytes -= new_bytes;
      if (!isSet) {
        this.#named.release(object);
        // The note may be on disk, even after an error.
        this.#drop(name);
      }
    }
  }

  async #put({ name, note, address, bytes }: KeepInit, signal: AbortSignal): Promise<void> {
    const { store } = this.#init;
    const record: NewRecord = { type: RecordType.note, id: noteIdOf(name), payload: note };
    if (bytes === undefined) await store.volume.put([record], signal);
    else await store.put(bytes, { expected: address, with: [record], isLeaving: this.#isLeaving }, signal);
  }

  #isKeeping(name: string): boolean {
    return this.#keeps.values().some((keep) => keep.name === name);
  }

  readonly #isLeaving = (address: Address): boolean => this.#leaving.has(address);

  /** Makes a name unreadable. The evictor removes its note, and its object with the last name. */
  #drop(name: string): undefined {
    this.#named.delete(name);
    if (!this.#leavingNames.has(name)) this.#leaving_bytes += nameBytes(name);
    this.#leavingNames.add(name);
    this.#wake.notifyOne();
  }

  /** The name, unless a removal concerns it. */
  #get(name: string): NamedObject | undefined {
    const entry = this.#named.get(name);
    return entry === undefined || this.#isRemoved(entry) ? undefined : entry;
  }

  /** Whether a removal concerns the name; then it is dropped. */
  #isRemoved({ name, removals }: NamedObject): boolean {
    let isRemoved = false;
    for (const removal of this.#removals) {
      if (removals >= removal.at || !removal.matches(name)) continue;
      removal.count += 1;
      isRemoved = true;
    }
    if (isRemoved) this.#drop(name);
    return isRemoved;
  }

  #voidKeeps(matches: (name: string) => boolean): readonly Keep[] {
    const voided = [...this.#keeps].filter(({ name }) => matches(name));
    for (const keep of voided) keep.isVoid = true;
    return voided;
  }

  /** Examines all names in steps, even if the caller leaves. */
  async #walk(removal: Removal): Promise<void> {
    let step = 0;
    for (const entry of this.#named.entries()) {
      this.#isRemoved(entry);
      step += 1;
      if (step % WALK_STEP === 0) await sched.pause('cache.remove');
    }
    removal.isWalked = true;
    this.#endRemovals();
  }

  /** Names that are not loaded yet are examined when they are. */
  #endRemovals(): void {
    if (!this.#isLoaded) return;
    for (const removal of this.#removals) if (removal.isWalked) this.#removals.delete(removal);
  }

  /** Until the names that were dropped, and those of the keeps, are removed from disk. */
  async #untilDurable(voided: readonly Keep[], signal: AbortSignal): Promise<void> {
    this.#wake.notifyOne();
    await this.#until(() => this.#isLoaded && !voided.some((keep) => this.#keeps.has(keep)), signal);
    const target = this.#flushed_total + this.#leavingNames.size;
    await this.#until(() => this.#flushed_total >= target, signal);
  }

  #isOver(share: number): boolean {
    return this.#named.bytes > share * this.#admit_max || this.#named.names_bytes > this.#init.names_bytes_max;
  }

  async #evict(signal: AbortSignal): Promise<void> {
    if (!this.#isOver(LIVE_MAX)) return;
    // Each name gets another turn at most once, however hot it is.
    let turns = this.#named.size;
    while (this.#isOver(LIVE_TARGET) && this.#named.size > 0) {
      for (const entry of this.#named.oldest(EVICT_STEP)) {
        if (!this.#isOver(LIVE_TARGET)) break;
        if (this.#isRemoved(entry)) continue;
        turns -= 1;
        if (turns >= 0 && this.#isKept(entry)) this.#named.renew(entry);
        else this.#drop(entry.name);
      }
      await this.#flush(signal);
      await sched.pause('cache.evict');
    }
  }

  #isKept(entry: NamedObject): boolean {
    return entry.uses > 0 || entry.object.holds > 0 || this.#init.isHot?.(entry.name) === true;
  }

  /** Writes the removal of names and of objects without one. */
  async #flush(signal: AbortSignal): Promise<void> {
    for (;;) {
      const names = this.#leavingNames.values().take(REMOVE_BATCH).toArray();
      const objects = this.#named.takeFree(REMOVE_BATCH);
      if (names.length + objects.length === 0) return;
      await this.#remove(names, objects, signal);
      for (const name of names) {
        this.#leavingNames.delete(name);
        this.#leaving_bytes -= nameBytes(name);
      }
      this.#flushed_total += names.length;
      this.#flushed.set(undefined);
    }
  }

  async #remove(names: readonly string[], objects: readonly ObjectRef[], signal: AbortSignal): Promise<void> {
    const { store } = this.#init;
    const records: NewRecord[] = names.map((name) => ({
      type: RecordType.unnote,
      id: noteIdOf(name),
      payload: NO_BYTES,
    }));
    for (const { address } of objects) {
      this.#leaving.add(address);
      records.push({ type: RecordType.remove, id: addressBytes(address), payload: NO_BYTES });
    }
    try {
      await store.volume.put(records, signal);
      for (const { address } of objects) store.forget(addressBytes(address));
    } catch (error) {
      for (const object of objects) this.#named.putBack(object);
      throw error;
    } finally {
      for (const { address } of objects) this.#leaving.delete(address);
    }
  }

  #compactIfDue(signal: AbortSignal): void {
    const isDue = this.disk_bytes > COMPACT_ABOVE * this.#admit_max && this.#compacting === undefined;
    if (!isDue || sched.now_ms() < this.#compacted_ms + COMPACT_AGAIN_MS) return;
    this.#compacting = this.#compact(signal).finally(() => (this.#compacting = undefined));
  }

  /** After a run that freed nothing, the next one waits for a while. */
  async #compact(signal: AbortSignal): Promise<void> {
    try {
      const { freed_bytes } = await this.#init.compactor.run(signal);
      this.#compacted_ms = freed_bytes > 0 ? -Infinity : sched.now_ms();
      this.#wake.notifyOne();
    } catch (error) {
      this.#compacted_ms = sched.now_ms();
      if (!signal.aborted) this.#init.onFailure?.(error);
    }
  }

  #hasRoom(bytes: number): boolean {
    return this.disk_bytes + this.#reserved_bytes + bytes <= this.#admit_max;
  }

  async #until(isDone: () => boolean, signal: AbortSignal): Promise<void> {
    const changes = this.#flushed.subscribe();
    while (!isDone()) await changes.changed(signal);
  }
}

/** A removal concerns the names that were set before it. */
interface Removal {
  readonly matches: (name: string) => boolean;
  readonly at: number;
  /** Names that it removed. */
  count: number;
  isWalked: boolean;
}

const noteBytes = (note: Uint8Array): number => recordBytes(note.length, 0);

function absentIfDamaged(error: unknown): undefined {
  if (!isRonError(error, 'integrity')) throw error;
}
