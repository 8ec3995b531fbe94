/**
 * An object store with a bound in bytes, for caches: the least recently used objects are evicted.
 *
 * Contract: the bytes of the objects, as their readers count them, stay within `bytes_max` after each put. An eviction is a
 * removal whose tombstone goes with the next compactions. Pinned objects are not evicted and count. `onEvict` is called
 * once the object is gone. After a restart the order is that of the puts.
 * Bound: about 200 bytes of memory for each object, `objects_max` objects; one compaction at a time, when a quarter of
 * `bytes_max` was evicted since the last. Overflow: eviction; an object larger than `bytes_max` is refused.
 * Cancellation: by the signals; `close` ends a compaction.
 */
import { RonError, sched, type Timer } from '@ron/kernel';
import { formatAddress, type Address } from '@ron/proto';
import { Compactor } from '../compaction/compactor.ts';
import type { ObjectStore } from './object-store.ts';
import type { FinishInit, Written } from './put-object.ts';
import { RecordType } from '../volume/record-types.ts';
import type { StoredObject } from './stored-object.ts';

const LIST_COUNT = 256;
const OBJECTS_MAX = 4 * 1024 * 1024;
const SYNC_AFTER_MS = 1000;

export interface EvictingStoreInit {
  store: ObjectStore;
  bytes_max: number;
  /** Default 4 Mi. */
  objects_max?: number;
  /** Called for each evicted object so that outer caches can drop it. Must not throw. */
  onEvict?: ((address: Address) => void) | undefined;
  /** Called when a compaction or a sync fails; it is tried again later. Must not throw. */
  onFailure?: ((error: unknown) => void) | undefined;
  /** An object that was put with `durability: 'later'` is synced, and visible, at most this much later. Default 1 s. */
  sync_after_ms?: number;
  compactor?: Compactor;
  signal: AbortSignal;
}

export class EvictingStore implements AsyncDisposable {
  readonly #init: EvictingStoreInit;
  readonly #compactor: Compactor;
  /** Sizes, the least recently used first. */
  readonly #sizes = new Map<Address, number>();
  readonly #stop = new AbortController();
  #bytes = 0;
  #evicted_bytes = 0;
  #compacting: Promise<void> | undefined;
  #syncTimer: Timer | undefined;
  #syncing: Promise<void> | undefined;

  private constructor(init: EvictingStoreInit) {
    this.#init = init;
    this.#compactor = init.compactor ?? new Compactor({ store: init.store, uploads: undefined });
  }

  static async open(init: EvictingStoreInit): Promise<EvictingStore> {
    const cache = new EvictingStore(init);
    await cache.#load();
    await cache.#evict(init.signal);
    return cache;
  }

  /** The bytes of all objects. */
  get bytes(): number {
    return this.#bytes;
  }

  get objects(): number {
    return this.#sizes.size;
  }

  async put(bytes: Uint8Array, init: FinishInit, signal: AbortSignal): Promise<Written> {
    const { store, bytes_max } = this.#init;
    if (bytes.length > bytes_max) {
      throw new RonError('payload_too_large', `${bytes.length} bytes do not fit a cache of ${bytes_max}`);
    }
    const written = await store.put(bytes, init, signal);
    this.#use(written.address, written.size);
    if (init.durability === 'later') this.#syncSoon();
    await this.#evict(signal, written.address);
    return written;
  }

  /** The object, or undefined when it is not stored. Marks it as the most recently used. */
  async open(address: Address, signal: AbortSignal): Promise<StoredObject | undefined> {
    const object = await this.#init.store.open(address, signal);
    if (object !== undefined && this.#sizes.has(address)) this.#use(address, object.size);
    return object;
  }

  async remove(address: Address, signal: AbortSignal): Promise<void> {
    await this.#init.store.remove(address, signal);
    this.#forget(address);
  }

  async close(): Promise<void> {
    this.#stop.abort(new RonError('draining', 'the cache is being closed'));
    this.#syncTimer?.cancel();
    await this.#syncing;
    await this.#compacting;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #load(): Promise<void> {
    const { store, signal } = this.#init;
    const found: { address: Address; size: number; put_s: number }[] = [];
    for (let after: Uint8Array | undefined; ;) {
      const listed = await store.volume.inventory('object', after, LIST_COUNT);
      for (const { id, type, payload_bytes, put_s } of listed) {
        const address = formatAddress(id);
        // A damaged manifest has no size; it goes first.
        const size = type === RecordType.object ? payload_bytes : await this.#sizeOf(address);
        found.push({ address, size: size ?? 0, put_s: size === undefined ? 0 : put_s });
      }
      after = listed.at(-1)?.id;
      if (after === undefined) break;
      signal.throwIfAborted();
    }
    for (const { address, size } of found.toSorted((a, b) => a.put_s - b.put_s)) this.#use(address, size);
  }

  async #sizeOf(address: Address): Promise<number | undefined> {
    const { store, signal } = this.#init;
    return (await store.open(address, signal).catch(() => signal.throwIfAborted()))?.size;
  }

  #use(address: Address, size: number): void {
    this.#forget(address);
    this.#sizes.set(address, size);
    this.#bytes += size;
  }

  #forget(address: Address): number {
    const size = this.#sizes.get(address) ?? 0;
    this.#sizes.delete(address);
    this.#bytes -= size;
    return size;
  }

  /** Removes the least recently used objects until the rest fits, without `except`. */
  async #evict(signal: AbortSignal, except?: Address): Promise<void> {
    const { store, bytes_max, objects_max = OBJECTS_MAX, onEvict } = this.#init;
    const isOver = (): boolean => this.#bytes > bytes_max || this.#sizes.size > objects_max;
    for (const address of this.#sizes.keys()) {
      if (!isOver()) break;
      if (address === except || store.isPinned(address)) continue;
      // One that was put with `later` becomes removable when it is visible.
      if (!store.has(address)) await store.volume.sync(signal);
      const size = this.#forget(address);
      try {
        if (store.has(address)) await store.remove(address, signal);
      } catch (error) {
        this.#use(address, size);
        throw error;
      }
      this.#evicted_bytes += size;
      onEvict?.(address);
    }
    if (this.#evicted_bytes >= bytes_max / 4) this.#compactSoon();
  }

  #compactSoon(): void {
    if (this.#compacting !== undefined || this.#stop.signal.aborted) return;
    this.#evicted_bytes = 0;
    this.#compacting = this.#compactor
      .run(this.#stop.signal)
      .then(
        () => undefined,
        (error: unknown) => void (this.#stop.signal.aborted || this.#init.onFailure?.(error)),
      )
      .finally(() => (this.#compacting = undefined));
  }

  #syncSoon(): void {
    if (this.#syncTimer !== undefined || this.#stop.signal.aborted) return;
    const fire = (): void => {
      this.#syncTimer = undefined;
      this.#syncing = this.#init.store.volume
        .sync(this.#stop.signal)
        .catch((error: unknown) => void (this.#stop.signal.aborted || this.#init.onFailure?.(error)));
    };
    this.#syncTimer = sched.timer(this.#init.sync_after_ms ?? SYNC_AFTER_MS, fire, 'cache.sync');
  }
}
