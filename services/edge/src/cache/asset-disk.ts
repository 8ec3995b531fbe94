/**
 * Fetched assets on disk, in `cache/` of the data directory.
 *
 * Contract: `store` is set while the directory is open. A directory that cannot be opened is tried again by `run`, as is a disk
 * that refuses writes; until then `problem` has the reason. No call waits for a disk that does not answer: it fails after
 * `LATE_MS`, and further ones at once.
 * Bound: `bytes_max` on disk, see `EvictingStore`. Cancellation: by the signals; `close` syncs the segments.
 */
import { Compactor, EvictingStore, LIVE_RATIO, LocalVolume, ObjectStore } from '@ron/cas';
import { RonError, sleep } from '@ron/kernel';
import { DiskGate, gatedFileSystem, type FileSystem } from '@ron/log';
import { parseNote } from './asset-note.ts';
import type { RunningPart } from '../running-part.ts';

const KIB = 1024;
const MIB = 1024 * KIB;
const SEGMENT_BYTES_MIN = 256 * KIB;
const SEGMENT_BYTES_MAX = 256 * MIB;
const SEGMENTS = 64;
/** Chunks that go to disk together: with one batch being filled and one being written, a body takes less than 1 MiB. */
const BATCH_BYTES = 128 * KIB;
/** Manifests of large assets. Assets have a memory of their own. */
const STORE_CACHE_BYTES = MIB;
const INDEX_ENTRY_BYTES = 72;
const CALLS_MAX = 64;
const LATE_MS = 5000;
const OPEN_AGAIN_MS = 1000;

export interface AssetDiskInit {
  readonly dir: string;
  readonly fs: FileSystem;
  readonly bytes_max: number;
  /** Memory for the keys. */
  readonly names_bytes_max: number;
  /** Whether an asset is in memory, so that its uses are not seen here. */
  readonly isHot: (key: string) => boolean;
  /** Called when the problem of the disk changes to another one. */
  readonly onProblem: (problem: string) => void;
  readonly signal: AbortSignal;
}

interface Opened {
  readonly volume: LocalVolume;
  readonly store: EvictingStore;
}

export class AssetDisk implements RunningPart, AsyncDisposable {
  readonly #init: AssetDiskInit;
  readonly #fs: FileSystem;
  readonly #closing = new AbortController();
  #opened: Opened | undefined;
  #open_problem: string | undefined;
  #read_problem: string | undefined;
  #reported: string | undefined;

  private constructor(init: AssetDiskInit) {
    this.#init = init;
    this.#fs = gatedFileSystem(init.fs, new DiskGate({ calls_max: CALLS_MAX, late_ms: LATE_MS }));
  }

  static async open(init: AssetDiskInit): Promise<AssetDisk> {
    const disk = new AssetDisk(init);
    await disk.#tryOpen(init.signal);
    return disk;
  }

  get store(): EvictingStore | undefined {
    return this.#opened?.store;
  }

  get problem(): string | undefined {
    if (this.#opened === undefined) return this.#open_problem;
    const { condition, reason } = this.#opened.volume.state;
    return condition === 'ok' ? this.#read_problem : reason;
  }

  get disk_bytes(): number {
    return this.#opened?.store.disk_bytes ?? 0;
  }

  /** The outcome of a read of the disk: undefined after a good one. */
  readResult(error: unknown): void {
    this.#read_problem = error === undefined ? undefined : `failed to read: ${messageOf(error)}`;
    if (error !== undefined) this.#report();
  }

  /** [edge I-2] The task `evictor`: the only one that removes notes and objects. */
  async run(stopping: AbortSignal): Promise<void> {
    while (this.#opened === undefined) {
      try {
        await sleep(OPEN_AGAIN_MS, stopping);
      } catch {
        return;
      }
      await this.#tryOpen(stopping);
    }
    await this.#opened.store.run(stopping);
  }

  /** [edge I-11] Syncs the segments and releases the directory. */
  async close(): Promise<void> {
    this.#closing.abort(new RonError('draining', 'the cache is being closed'));
    await this.#opened?.volume.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #tryOpen(signal: AbortSignal): Promise<void> {
    try {
      this.#opened = await this.#open(AbortSignal.any([signal, this.#closing.signal]));
      this.#open_problem = undefined;
    } catch (error) {
      if (signal.aborted) return;
      this.#open_problem = `failed to open ${this.#init.dir}: ${messageOf(error)}`;
      this.#report();
    }
  }

  async #open(signal: AbortSignal): Promise<Opened> {
    const { dir, bytes_max, names_bytes_max, isHot } = this.#init;
    const segment_bytes = segmentBytesOf(bytes_max);
    const onState = (): void => this.#report();
    const volume = await LocalVolume.open({ dir, fs: this.#fs, segment_bytes, onState, signal });
    const store = new ObjectStore({ volume, batch_bytes: BATCH_BYTES, cache_bytes: STORE_CACHE_BYTES });
    const compaction = { store, uploads: undefined, live_ratio: LIVE_RATIO, seal_bytes_min: segment_bytes / 2 };
    const { index } = volume;
    return {
      volume,
      store: new EvictingStore({
        store,
        compactor: new Compactor(compaction),
        bytes_max,
        names_bytes_max,
        segment_bytes,
        indexBytes: () => index.runs.runs.reduce((sum, { count }) => sum + count * INDEX_ENTRY_BYTES, 0),
        parse: (note) => {
          const meta = parseNote(note);
          return meta && { name: meta.key, address: meta.address, size: meta.size };
        },
        isHot,
        onFailure: () => this.#report(),
      }),
    };
  }

  #report(): void {
    const { problem } = this;
    if (problem !== undefined && problem !== this.#reported) this.#init.onProblem(problem);
    this.#reported = problem;
  }
}

/** Small enough that compaction moves little, and large enough that there are not too many files. */
const segmentBytesOf = (bytes_max: number): number =>
  Math.min(SEGMENT_BYTES_MAX, Math.max(SEGMENT_BYTES_MIN, Math.floor(bytes_max / SEGMENTS)));

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
