/**
 * Reads contents from several volumes, in the requested order.
 *
 * Contract: each volume gets one call for its contents, all volumes concurrently, so that neighbours on a disk are still read
 * together. Contents that a volume fails to deliver are read one by one from another copy or a stripe.
 * Bound: the requested contents, which the caller's read-ahead limits. At most `RESCUES_MAX` stripes are read at a time in the
 * process; of a stripe only the requested contents are kept. Cancellation: by the signal; stopping the iteration stops all
 * volumes.
 */
import { chunkKey, type Volume } from '@ron/cas';
import { LATE, RonError, WaitList, withTimeout } from '@ron/kernel';

/** A stripe of 6+3 shards takes 0.6 MiB while it is read. */
const RESCUES_MAX = 16;

export interface ReadManyInit {
  ids: readonly Uint8Array[];
  /** The volume to read it from; undefined when none holds it. */
  holderOf: (id: Uint8Array) => Volume | undefined;
  /** Reads it from any copy or stripe. Throws when there is none. */
  fallback: (id: Uint8Array) => Promise<Uint8Array>;
  /** How to rebuild one that no volume holds, together with the others of its stripe. */
  rescue: (id: Uint8Array) => Promise<Rescue | undefined>;
  /** How long to wait for a batch of a volume. */
  lag_ms: number;
  /** Called when a volume fails to deliver a content that it holds. */
  onFailure: (volume: Volume, id: Uint8Array, error: unknown) => void;
  signal: AbortSignal;
}

export type Batch = readonly Uint8Array[];

/** Contents that are rebuilt together. */
export interface Rescue {
  readonly ids: readonly Uint8Array[];
  /** By their keys. Those that are missing have to be read in another way. */
  load(): Promise<ReadonlyMap<string, Uint8Array>>;
}

export async function* readMany(init: ReadManyInit): AsyncGenerator<Batch, void, void> {
  const window = await Window.open(init, init.ids);
  try {
    yield* window.batches();
  } finally {
    await window.close();
  }
}

/** Limits how many stripes are read at the same time. Waiters leave by their signal. */
class RescueSlots {
  readonly #waiters = new WaitList<void, void>({ owner: this, label: 'read-many.rescue' });
  #free = RESCUES_MAX;

  async run<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    signal.throwIfAborted();
    if (this.#free === 0) await this.#waiters.park(signal, undefined);
    else this.#free -= 1;
    try {
      return await work();
    } finally {
      if (this.#waiters.size > 0) this.#waiters.wakeFirst();
      else this.#free += 1;
    }
  }
}

const RESCUES = new RescueSlots();

/** The contents of a stripe with these keys. The others are dropped once it is loaded. */
function loadSome(
  rescue: Rescue,
  wanted: readonly string[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, Uint8Array>> {
  return RESCUES.run(signal, async () => {
    const loaded = await rescue.load();
    const some = new Map<string, Uint8Array>();
    for (const key of wanted) {
      const content = loaded.get(key);
      if (content !== undefined) some.set(key, content);
    }
    return some;
  });
}

class Window {
  readonly #init: ReadManyInit;
  readonly #ids: readonly Uint8Array[];
  readonly #keys: ReadonlySet<string>;
  readonly #lanes = new Map<Volume, Lane>();
  readonly #rescues = new Map<string, Promise<ReadonlyMap<string, Uint8Array>>>();
  #laneOf: (Lane | undefined)[] = [];

  private constructor(init: ReadManyInit, ids: readonly Uint8Array[]) {
    this.#init = init;
    this.#ids = ids;
    this.#keys = new Set(ids.map(chunkKey));
  }

  static async open(init: ReadManyInit, ids: readonly Uint8Array[]): Promise<Window> {
    const window = new Window(init, ids);
    for (const id of ids) if (init.holderOf(id) === undefined) await window.#rescue(id);
    window.#laneOf = ids.map((id) => window.#join(id));
    for (const lane of window.#lanes.values()) lane.start(init.signal);
    return window;
  }

  async #rescue(id: Uint8Array): Promise<void> {
    if (this.#rescues.has(chunkKey(id))) return;
    const rescue = await this.#init.rescue(id);
    if (rescue === undefined) return;
    const wanted = rescue.ids.map(chunkKey).filter((key) => this.#keys.has(key));
    const contents = loadSome(rescue, wanted, this.#init.signal);
    // A failure is reported to the first caller that needs one of its contents; until then it must not count as unhandled.
    contents.catch(() => undefined);
    for (const key of wanted) this.#rescues.set(key, contents);
  }

  #join(id: Uint8Array): Lane | undefined {
    const volume = this.#rescues.has(chunkKey(id)) ? undefined : this.#init.holderOf(id);
    if (volume === undefined) return undefined;
    let lane = this.#lanes.get(volume);
    if (lane === undefined) {
      lane = new Lane(volume);
      this.#lanes.set(volume, lane);
    }
    lane.ids.push(id);
    return lane;
  }

  /** A batch of a volume is valid until the next one is requested: its contents are yielded before. */
  async *batches(): AsyncGenerator<Batch, void, void> {
    let gathered: Uint8Array[] = [];
    for (const [index, id] of this.#ids.entries()) {
      const lane = this.#laneOf[index];
      if (lane?.isUsed === true && lane.isAtEnd) {
        yield gathered;
        gathered = [];
        for (const each of this.#lanes.values()) each.isUsed = false;
      }
      gathered.push(await this.#next(lane, id));
      if (lane !== undefined) lane.isUsed = true;
    }
    yield gathered;
  }

  async #next(lane: Lane | undefined, id: Uint8Array): Promise<Uint8Array> {
    const { signal, fallback, onFailure } = this.#init;
    signal.throwIfAborted();
    if (lane === undefined) return (await this.#rescued(id)) ?? (await fallback(id));
    if (lane.hasFailed) return await fallback(id);
    try {
      return await lane.next(this.#init.lag_ms);
    } catch (error) {
      signal.throwIfAborted();
      onFailure(lane.volume, id, error);
      return await fallback(id);
    }
  }

  async #rescued(id: Uint8Array): Promise<Uint8Array | undefined> {
    try {
      return (await this.#rescues.get(chunkKey(id)))?.get(chunkKey(id));
    } catch {
      this.#init.signal.throwIfAborted();
      return undefined;
    }
  }

  async close(): Promise<void> {
    await Promise.all([...this.#lanes.values()].map((lane) => lane.close()));
  }
}

/** The batches of one volume. */
class Lane {
  readonly volume: Volume;
  readonly ids: Uint8Array[] = [];
  hasFailed = false;
  /** The consumer uses its batch. */
  isUsed = false;
  #iterator: AsyncIterator<Batch> | undefined;
  #pending: Promise<IteratorResult<Batch>> | undefined;
  #batch: Batch = [];
  #at = 0;

  constructor(volume: Volume) {
    this.volume = volume;
  }

  /** The next one needs another batch, which ends the validity of this one. */
  get isAtEnd(): boolean {
    return this.#at === this.#batch.length;
  }

  start(signal: AbortSignal): void {
    this.#iterator = this.volume.getMany(this.ids, signal)[Symbol.asyncIterator]();
    this.#pending = this.#iterator.next();
    // The reader gets the failure later; until then it must not count as unhandled.
    this.#pending.catch(() => undefined);
  }

  async next(lag_ms: number): Promise<Uint8Array> {
    if (this.isAtEnd) await this.#advance(lag_ms);
    return this.#batch[this.#at++]!;
  }

  async #advance(lag_ms: number): Promise<void> {
    try {
      this.#pending ??= this.#iterator!.next();
      const result = await withTimeout(this.#pending, lag_ms);
      if (result === LATE) throw new RonError('timeout', `${this.volume.name} took too long`, { op: 'read' });
      this.#pending = undefined;
      if (result.done === true || result.value.length === 0)
        throw new Error(`${this.volume.name} gave too few contents`);
      this.#batch = result.value;
      this.#at = 0;
    } catch (error) {
      this.hasFailed = true;
      throw error;
    }
  }

  /** A read under way after a failure ends by itself. */
  async close(): Promise<void> {
    const ended = this.#iterator?.return?.();
    if (this.hasFailed) ended?.catch(() => undefined);
    else await ended;
  }
}
