/**
 * The cache of fetched assets: memory above disk. In amnesia there is no disk.
 *
 * Contract: as `AssetCache`. [edge I-2] `fill_log` adds notes through `keep`, and `evictor` removes them: `run`. An asset is in
 * memory only after its note is durable, unless the disk fails: then memory is all there is, and `problem` has the reason. A
 * failed or slow disk never fails a look-up: it is a miss. Every byte was verified against its address; a damaged one is a miss,
 * or ends the answer of a large asset, and the asset is dropped.
 * Bound: the memory of `RamAssets`, the disk of `AssetDisk`, the budget for bodies in memory. Overflow: eviction; bodies above
 * the budget are refused with `busy`.
 * Cancellation: by the signals. A cancelled `keep` keeps nothing.
 */
import type { EvictingStore, EvictingWriter, FoundObject, StoredObject } from '@ron/cas';
import { Deadline, isRonError, RonError, touch } from '@ron/kernel';
import type { Batch, ByteSource } from '@ron/ingress';
import type { AssetKey } from '../assets/asset-key.ts';
import type { PreparedAsset } from '../assets/fetched-answer.ts';
import type { RunningPart } from '../running-part.ts';
import { AssetBody } from './asset-body.ts';
import type { AssetCache, BodyWriter, KeepOutcome, PurgeSelection, RamAsset, StoredBody } from './asset-cache.ts';
import { encodeNote, parseNote } from './asset-note.ts';
import { diskSource, ramSource, type SourceInit } from './asset-source.ts';
import { BodyBudget } from './body-budget.ts';
import type { AssetMeta, CachedAsset } from './cached-asset.ts';
import { matcherOf } from './purge-selection.ts';
import { RamAssets } from './ram-assets.ts';

const WHOLE_BYTES_MAX = 1024 * 1024;

/** The disk, as the cache uses it. */
export interface DiskTier extends RunningPart {
  readonly store: CacheStore | undefined;
  readonly problem: string | undefined;
  readonly disk_bytes: number;
  readResult(error: unknown): void;
  close(): Promise<void>;
}

export type CacheStore = Pick<
  EvictingStore,
  'find' | 'peek' | 'keep' | 'removeWhere' | 'has' | 'remove' | 'writer' | 'openObject'
>;

export interface TieredCacheInit {
  readonly ram: RamAssets;
  /** Undefined in amnesia. */
  readonly disk: DiskTier | undefined;
  /** Memory for bodies that cannot go to disk. */
  readonly bodies_bytes_max: number;
  /** Prepares an asset for memory; undefined if it should not be there. The bytes are its to keep. */
  readonly prepare: (meta: AssetMeta, bytes: Uint8Array) => PreparedAsset | undefined;
  /** The time for a look-up on disk; after it the asset counts as absent. Default: that of the signal. */
  readonly find_ms?: number;
  /** Assets up to this size are read as a whole, so that damage is found before the answer begins. Default 1 MiB. */
  readonly whole_bytes_max?: number;
}

interface Keep {
  readonly key: AssetKey;
  /** A purge has removed the key since. */
  isVoid: boolean;
}

export class TieredCache implements AssetCache, RunningPart, AsyncDisposable {
  readonly ram: RamAssets;
  readonly #init: TieredCacheInit;
  readonly #budget: BodyBudget;
  readonly #keeps = new Set<Keep>();
  #generation = 0;

  constructor(init: TieredCacheInit) {
    this.#init = init;
    this.ram = init.ram;
    this.#budget = new BodyBudget(init.bodies_bytes_max);
  }

  get problem(): string | undefined {
    return this.#init.disk?.problem;
  }

  get disk_bytes(): number {
    return this.#init.disk?.disk_bytes ?? 0;
  }

  get generation(): number {
    touch(this);
    return this.#generation;
  }

  async run(stopping: AbortSignal): Promise<void> {
    await this.#init.disk?.run(stopping);
  }

  async close(): Promise<void> {
    await this.#init.disk?.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async find(key: AssetKey, signal: AbortSignal): Promise<CachedAsset | undefined> {
    const asset = this.ram.find(key)?.asset;
    if (asset?.meta !== undefined) return { meta: asset.meta, source: asset.entry.source, tier: 'ram' };
    const { disk } = this.#init;
    if (disk?.store === undefined) return undefined;
    try {
      const { store } = disk;
      using deadline = this.#findDeadline(signal);
      const found = await deadline.run((mine) => this.#findOnDisk(store, key, mine));
      // A name that is not known does not show that the disk can be read.
      if (found !== undefined) disk.readResult(undefined);
      return found;
    } catch (error) {
      signal.throwIfAborted();
      disk.readResult(error);
      return undefined;
    }
  }

  async peek(key: AssetKey, signal: AbortSignal): Promise<Pick<CachedAsset, 'meta' | 'tier'> | undefined> {
    const inRam = this.ram.peek(key)?.asset?.meta;
    if (inRam !== undefined) return { meta: inRam, tier: 'ram' };
    try {
      const note = await this.#init.disk?.store?.peek(key, signal);
      const meta = note && parseNote(note);
      return meta && { meta, tier: 'cas' };
    } catch {
      signal.throwIfAborted();
      return undefined;
    }
  }

  writer(bytes_max: number, expected_bytes?: number): BodyWriter {
    return new AssetBody({
      bytes_max,
      expected_bytes,
      budget: this.#budget,
      toDisk: () => this.#diskWriter(bytes_max),
      sourceOf: (about, signal) => this.#writtenSource(about, signal),
    });
  }

  async keep(meta: AssetMeta, body: StoredBody, generation: number, signal: AbortSignal): Promise<KeepOutcome> {
    const keep = { key: meta.key, isVoid: generation !== this.generation };
    this.#keeps.add(keep);
    try {
      const isOnDisk = !keep.isVoid && (await this.#keepOnDisk(meta, body, signal));
      // In one step: a purge comes before it, or removes the asset from memory.
      if (keep.isVoid) return 'purged';
      const isInRam = this.#remember(meta, body.source);
      return isOnDisk || isInRam ? 'kept' : 'not_stored';
    } finally {
      this.#keeps.delete(keep);
      body.discard();
    }
  }

  async purge(selection: PurgeSelection, signal: AbortSignal): Promise<number> {
    touch(this);
    const matches = matcherOf(selection);
    // Up to the first wait, one step: no reader sees a part of it.
    this.#generation += 1;
    for (const keep of this.#keeps) if (matches(keep.key)) keep.isVoid = true;
    const { disk } = this.#init;
    const { store } = disk ?? {};
    let inRam = 0;
    this.ram.deleteWhere((key, asset) => {
      if (!matches(key)) return false;
      if (isOnlyInRam(key, asset, store)) inRam += 1;
      return true;
    });
    if (disk === undefined) return inRam;
    if (store === undefined) throw new RonError('not_ready', `the cache is not open: ${disk.problem ?? 'try again'}`);
    return inRam + (await store.removeWhere(matches, signal));
  }

  withdraw(key: AssetKey): void {
    touch(this);
    for (const keep of this.#keeps) if (keep.key === key) keep.isVoid = true;
    this.ram.delete(key);
    this.#init.disk?.store?.remove(key);
  }

  #findDeadline(signal: AbortSignal): Deadline {
    const { find_ms } = this.#init;
    const op = 'cache.find';
    return find_ms === undefined ? Deadline.unlimited(op, { signal }) : Deadline.after(op, find_ms, { signal });
  }

  async #findOnDisk(store: CacheStore, key: AssetKey, signal: AbortSignal): Promise<CachedAsset | undefined> {
    const found = await store.find(key, signal);
    const meta = found && parseNote(found.note);
    if (meta === undefined) return undefined;
    const source = await this.#sourceOf(store, meta, found!, signal);
    if (source === undefined) return undefined;
    // A purge or a newer fill may have come while it was read.
    if (found!.isCurrent()) this.#remember(meta, source);
    return { meta, source, tier: 'cas' };
  }

  /** Undefined if the object is damaged. */
  async #sourceOf(
    store: CacheStore,
    meta: AssetMeta,
    found: FoundObject,
    signal: AbortSignal,
  ): Promise<ByteSource | undefined> {
    const { object } = found;
    const drop = (): void => (found.isCurrent() ? store.remove(meta.key) : undefined);
    if (object.size > (this.#init.whole_bytes_max ?? WHOLE_BYTES_MAX)) {
      return diskSource(meta, (start, end, mine) => readHeld(found, object, start, end, mine, drop));
    }
    try {
      return ramSource(meta, object.whole ?? (await readWhole(found, object, signal)));
    } catch (error) {
      if (!isRonError(error, 'integrity')) throw error;
      drop();
      return undefined;
    }
  }

  #diskWriter(bytes_max: number): EvictingWriter | undefined {
    const { disk } = this.#init;
    return disk?.problem === undefined ? disk?.store?.writer(bytes_max) : undefined;
  }

  async #writtenSource(about: SourceInit, signal: AbortSignal): Promise<ByteSource> {
    const object = await this.#init.disk!.store!.openObject(about.address, signal);
    if (object === undefined) throw new RonError('not_ready', 'a stored asset was lost', { retry_after_ms: 1000 });
    return diskSource(about, (start, end, mine) => readHeld(object, object.object, start, end, mine, () => undefined));
  }

  /** False if the disk does not have it; a failed disk reports itself. */
  async #keepOnDisk(meta: AssetMeta, body: StoredBody, signal: AbortSignal): Promise<boolean> {
    const store = this.#init.disk?.store;
    if (store === undefined) return false;
    const { key: name, address, size } = meta;
    const bytes = bytesIn(body.source);
    try {
      return await store.keep({ name, address, size, note: encodeNote(meta), bytes }, signal);
    } catch {
      signal.throwIfAborted();
      return false;
    }
  }

  #remember(meta: AssetMeta, source: ByteSource): boolean {
    const bytes = bytesIn(source);
    const prepared = bytes && this.#init.prepare(meta, bytes);
    if (prepared === undefined) {
      // Not found in memory, rather than found as it was before.
      this.ram.delete(meta.key);
      return false;
    }
    return this.ram.set(meta.key, prepared.asset, prepared.bytes, prepared.lifetime);
  }
}

const isOnlyInRam = (key: AssetKey, asset: RamAsset | undefined, store: CacheStore | undefined): boolean =>
  asset?.meta !== undefined && store?.has(key) !== true;

/** The whole body, if it is in memory. */
function bytesIn({ ram }: ByteSource): Uint8Array | undefined {
  if (ram === undefined) return undefined;
  return ram.length === 1 ? ram[0] : Buffer.concat(ram);
}

async function readWhole(found: Held, object: StoredObject, signal: AbortSignal): Promise<Uint8Array> {
  using hold = found.hold();
  const bytes = Buffer.allocUnsafeSlow(object.size);
  let at = 0;
  for await (const batch of object.read(0, object.size, signal)) {
    for (const part of batch) {
      bytes.set(part, at);
      at += part.length;
    }
  }
  return hold && bytes;
}

type Held = Pick<FoundObject, 'hold'>;

/** Reads a large object, which stays until the reader ends. */
async function* readHeld(
  found: Held,
  object: StoredObject,
  start: number,
  end: number,
  signal: AbortSignal,
  onDamage: () => void,
): AsyncGenerator<Batch, void, void> {
  const hold = found.hold();
  try {
    yield* object.read(start, end, signal);
  } catch (error) {
    if (isRonError(error, 'integrity')) onDamage();
    throw error;
  } finally {
    hold[Symbol.dispose]();
  }
}
