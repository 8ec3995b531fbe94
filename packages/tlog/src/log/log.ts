/**
 * An append-only log with signed checkpoints: a Merkle tree of RFC 6962 over SHA-256, readable as C2SP tlog-tiles.
 *
 * Contract: an acknowledged append survives any crash, and indexes are contiguous. A checkpoint covers every append that was
 * acknowledged before the call and only durable entries, and each checkpoint extends the one before. `open` verifies that
 * the log extends its last checkpoint and every checkpoint in `known`, or rejects with `audit_integrity`. One process at a
 * time may open a log.
 * Bound: one append at a time, `WAITERS_MAX` wait; memory does not grow with the log. Overflow: `busy`.
 * Cancellation: a waiting append leaves with its signal's reason; an append that has begun completes or fails as a whole. A
 * checkpoint that is aborted before it is written leaves the old one in place.
 * Pruning: entries below `first` were removed, with a mark that the log itself announces; everything above stays provable.
 * Failure: a full disk or a failed sync fails the call (`storage_full`, `not_ready`) and its writes are rolled back; the
 * next call uses new descriptors.
 */
import { join } from 'node:path';
import { assert, Mutex, orAborted, RonError } from '@ron/kernel';
import { diskError, realFileSystem, rethrowDisk, type FileSystem } from '@ron/log';
import { CheckpointFile, type SignedCheckpoint } from './checkpoint-file.ts';
import { HASH_BYTES, leafHash } from '../tree/hash.ts';
import { damaged, LogFiles } from './log-files.ts';
import { parseVkey, signCheckpoint, type NoteSigner } from '../note/note-key.ts';
import { announces, readMark, writeMark, type PruneMark } from './prune-mark.ts';
import { encodeRecords, recordBytes } from './records.ts';
import { requireConsistent, recover, type KnownCheckpoint } from './recovery.ts';
import { TileCache, TileHashes } from '../tiles/tile-hashes.ts';
import { decodeBundle, ENTRY_BYTES_MAX, hashesAt, parseTilePath, TILE_WIDTH, widthAt } from '../tiles/tiles.ts';
import { verifiedEntries, type LogSlice } from './verified-entries.ts';
import { TreeBatch, type Extent } from '../tree/tree-batch.ts';
import { consistencyProof, inclusionProof, isSame, type InclusionProof } from '../tree/tree.ts';

/** Appends, and checkpoints, that may wait for the mutex. */
const WAITERS_MAX = 16;
/** Tiles cached for proofs: 1 MiB. */
const TILES_MAX = 64;
/** Total bytes of the entries of one append. */
const APPEND_BYTES_MAX = 64 * 1024 * 1024;

export interface TransparencyLogInit {
  dir: string;
  /** The log's name in its checkpoints. */
  origin: string;
  /** Each signs every checkpoint. */
  signers: readonly NoteSigner[];
  /** Keys that signed earlier checkpoints and may have been retired since. Default none. */
  vkeys?: readonly string[];
  fs?: FileSystem;
  /** Checkpoints of this log that are stored elsewhere. Default none. */
  known?: readonly KnownCheckpoint[];
  signal: AbortSignal;
  /** Called with the number of bytes of a torn write that were cut off at the end. */
  onCut?(bytes: number): void;
}

/** Stores checkpoints outside of the log, to detect a rollback. */
export interface CheckpointRecorder {
  /** Called before the checkpoint is published. If it rejects, the checkpoint is not published. */
  beforePublish(checkpoint: SignedCheckpoint, signal: AbortSignal): Promise<unknown>;
  /** Called while the checkpoint is being published. */
  duringPublish?(checkpoint: SignedCheckpoint, signal: AbortSignal): Promise<unknown>;
}

export class TransparencyLog implements AsyncDisposable {
  readonly dir: string;
  readonly fs: FileSystem;
  readonly #init: TransparencyLogInit;
  readonly #files: LogFiles;
  readonly #checkpointFile: CheckpointFile;
  readonly #lock: Disposable | undefined;
  readonly #tiles = new TileCache(TILES_MAX);
  readonly #appends = new Mutex('log.append', { waiters_max: WAITERS_MAX });
  readonly #checkpoints = new Mutex('log.checkpoint', { waiters_max: WAITERS_MAX });
  /** The durable part of the log. */
  #extent: Extent;
  #mark: PruneMark | undefined;
  /** Bytes of entries and leaf hashes that were removed. */
  #pruned_bytes = 0;
  /** A write or sync failed: it must be rolled back before the next one. */
  #needsRepair = false;
  #closing: Promise<void> | undefined;

  private constructor(
    init: TransparencyLogInit,
    opened: {
      files: LogFiles;
      checkpointFile: CheckpointFile;
      extent: Extent;
      mark: PruneMark | undefined;
      lock: Disposable | undefined;
    },
  ) {
    this.#init = init;
    this.dir = opened.files.dir;
    this.fs = opened.files.fs;
    this.#files = opened.files;
    this.#checkpointFile = opened.checkpointFile;
    this.#extent = opened.extent;
    this.#mark = opened.mark;
    this.#lock = opened.lock;
  }

  static async open(init: TransparencyLogInit): Promise<TransparencyLog> {
    const { dir, fs = realFileSystem } = init;
    await fs.makeDir(dir).catch(rethrowDisk);
    const lock = fs.lock?.(join(dir, 'lock'));
    if (fs.lock !== undefined && lock === undefined) {
      throw new RonError('conflict', `${dir} is in use by another process: stop it first`);
    }
    try {
      return await TransparencyLog.#open(init, await LogFiles.open(fs, dir), lock);
    } catch (error) {
      lock?.[Symbol.dispose]();
      return rethrowDisk(error);
    }
  }

  static async #open(
    init: TransparencyLogInit,
    files: LogFiles,
    lock: Disposable | undefined,
  ): Promise<TransparencyLog> {
    const { known = [], signal } = init;
    try {
      const checkpointFile = await openCheckpoint(files, init);
      const mark = await readMark(files.fs, files.dir);
      const extent = await recover(files, {
        checkpoint: checkpointFile.current,
        known,
        mark,
        signal,
        onCut: (bytes) => init.onCut?.(bytes),
      });
      const log = new TransparencyLog(init, { files, checkpointFile, extent, mark, lock });
      // A crash may have interrupted the removal. On a disk that cannot free parts of files the log only takes more room.
      if (mark !== undefined) await log.#discard(mark.before).catch(() => undefined);
      return log;
    } catch (error) {
      await files.close();
      throw error;
    }
  }

  /** The number of durable entries. */
  get size(): number {
    return this.#extent.frontier.size;
  }

  /** The index of the first entry that was not removed. */
  get first(): number {
    return this.#mark?.before ?? 0;
  }

  /** If older entries were removed. */
  get mark(): PruneMark | undefined {
    return this.#mark;
  }

  /** The bytes of the entries and of their leaf hashes. */
  get bytes(): number {
    return this.#extent.bytes + this.size * HASH_BYTES - this.#pruned_bytes;
  }

  /** The latest signed checkpoint. */
  get checkpoint(): SignedCheckpoint | undefined {
    return this.#checkpointFile.current;
  }

  /** Appends entries with consecutive indexes from `first`; resolves when they are durable. */
  async append(entries: readonly Uint8Array[], signal: AbortSignal): Promise<{ first: number }> {
    let bytes = 0;
    for (const entry of entries) {
      if (entry.length > ENTRY_BYTES_MAX) {
        throw new RonError('payload_too_large', `the entry has ${entry.length} bytes, the limit is ${ENTRY_BYTES_MAX}`);
      }
      bytes += entry.length;
    }
    assert(entries.length > 0, 'an append has an entry');
    if (bytes > APPEND_BYTES_MAX) {
      throw new RonError('payload_too_large', `the append has ${bytes} bytes, the limit is ${APPEND_BYTES_MAX}`);
    }
    return await this.#appends.run(signal, () => this.#append(entries));
  }

  /**
   * Signs the durable entries and replaces the checkpoint; returns the current one if it already covers them. `recorder`
   * stores the new one before it is published.
   */
  async writeCheckpoint(signal: AbortSignal, recorder?: CheckpointRecorder): Promise<SignedCheckpoint> {
    return await this.#checkpoints.run(signal, async () => {
      // In the order of the appends: it covers every earlier append, and no append writes during the sync.
      const extent = await this.#appends.run(signal, () => this.#syncAll());
      const { origin, signers } = this.#init;
      const { size } = extent.frontier;
      const current = this.checkpoint;
      if (current?.size === size && this.#checkpointFile.isSignedByAll(signers)) return current;
      const checkpoint = { origin, size, root: extent.frontier.root() };
      const text = await orAborted(signCheckpoint(checkpoint, signers, signal), signal);
      await recorder?.beforePublish({ ...checkpoint, text }, signal);
      const beside = recorder?.duringPublish?.({ ...checkpoint, text }, signal);
      const ended = await Promise.allSettled([this.#checkpointFile.replace(text), beside]);
      for (const each of ended) if (each.status === 'rejected') throw each.reason;
      return this.checkpoint!;
    });
  }

  /** Adds witness signatures to the checkpoint over `size` entries. Returns false if it is no longer the latest. */
  async addCosignatures(size: number, lines: string, signal: AbortSignal): Promise<boolean> {
    return await this.#checkpoints.run(signal, async () => {
      if (this.checkpoint?.size !== size) return false;
      await this.#checkpointFile.addSignatures(lines);
      return true;
    });
  }

  /**
   * Removes all entries before `before`, a multiple of 256, permanently. The entry at `entry` announces it; the latest checkpoint
   * must cover that entry. Returns the bytes freed.
   */
  async prune({ before, entry }: PruneMark, signal: AbortSignal): Promise<number> {
    const { checkpoint } = this;
    const isWhole = Number.isSafeInteger(before) && before % TILE_WIDTH === 0;
    if (!isWhole || before <= this.first || entry < before || entry >= (checkpoint?.size ?? 0)) {
      throw new RonError(
        'conflict',
        'a pruning ends between two bundles, behind an entry and a checkpoint that cover it',
      );
    }
    if (!announces(await this.entry(entry), before)) {
      throw new RonError('conflict', `entry ${entry} does not announce a pruning before ${before}`);
    }
    return await this.#checkpoints.run(signal, async () => {
      const bytes = this.#pruned_bytes;
      try {
        await this.#files.requireDiscard();
        // Durable before anything is removed: a crash in between is completed by `open`.
        await writeMark(this.#files.fs, this.#files.dir, { before, entry });
        this.#mark = { before, entry };
        await this.#discard(before);
      } catch (error) {
        throw diskError(error);
      }
      return this.#pruned_bytes - bytes;
    });
  }

  /** Proves that entry `index` is in the tree of the first `size` entries. Default: the tree of the latest checkpoint. */
  async proof(index: number, size = this.checkpoint?.size ?? 0): Promise<InclusionProof> {
    this.#expectSize(size);
    this.#expectKept(index);
    const hashes = this.#hashes(size);
    const path = await inclusionProof(hashes, index, size).catch(rethrowDisk);
    return { index, size, leaf: await hashes.node(0, index), path };
  }

  /** Proves that the first `from` entries are a prefix of the first `to`. */
  async consistency(from: number, to: number): Promise<Uint8Array[]> {
    this.#expectSize(to);
    if (from % TILE_WIDTH > 0) this.#expectKept(from);
    return await consistencyProof(this.#hashes(to), from, to).catch(rethrowDisk);
  }

  /** Returns a tile or bundle by its path; undefined if the latest checkpoint does not cover it. */
  async readTile(path: string): Promise<Uint8Array | undefined> {
    const tile = parseTilePath(path);
    if (tile === undefined) return undefined;
    const { level, index, width } = tile;
    if (widthAt(level, index, this.checkpoint?.size ?? 0) < width) return undefined;
    if ((level === 'entries' || level === 0) && index * TILE_WIDTH < this.first) return undefined;
    const read = level === 'entries' ? this.#readBundle(index, width) : this.#files.readHashes(level, index, width);
    return await read.catch(rethrowDisk);
  }

  async entry(index: number): Promise<Uint8Array> {
    if (!Number.isSafeInteger(index) || index < 0 || index >= this.size) {
      throw new RonError('not_found', `the log has ${this.size} entries and no entry ${index}`);
    }
    this.#expectKept(index);
    const bundle = Math.floor(index / TILE_WIDTH);
    const within = index % TILE_WIDTH;
    const bytes = await this.#readBundle(bundle, within + 1).catch(rethrowDisk);
    const entry = decodeBundle(bytes)?.at(-1);
    const leaf = await this.#hashes(this.size).node(0, index).catch(rethrowDisk);
    if (entry === undefined || !isSame(leafHash(entry), leaf)) {
      throw damaged('entries', `entry ${index} does not match its leaf hash`);
    }
    return entry;
  }

  /**
   * The entries from index `from` to the end that the log has now, in order, bundle by bundle. Each is verified against its
   * leaf hash (`audit_integrity`). Bound: one bundle in memory. Cancellation: between two bundles.
   */
  async *entries(from: number, signal: AbortSignal): AsyncGenerator<LogSlice, void, void> {
    const { size } = this;
    this.#expectSize(from);
    if (from < size) this.#expectKept(from);
    for (let at = from; at < size;) {
      signal.throwIfAborted();
      const bundle = Math.floor(at / TILE_WIDTH);
      const start = bundle * TILE_WIDTH;
      const entries = await this.#verifiedBundle(bundle, widthAt('entries', bundle, size)).catch(rethrowDisk);
      yield { first: at, entries: entries.slice(at - start) };
      at = start + entries.length;
    }
  }

  /** Completes appends in progress and closes the files. Signs nothing: the owner signs the final checkpoint first. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    await this.#checkpoints.close();
    await this.#appends.close();
    await this.#files.close();
    this.#lock?.[Symbol.dispose]();
  }

  async #append(entries: readonly Uint8Array[]): Promise<{ first: number }> {
    await this.#repair();
    const { bytes, frontier } = this.#extent;
    const batch = new TreeBatch(this.#extent);
    const leaves = entries.map(leafHash);
    const records = encodeRecords(entries, leaves);
    let end = bytes;
    for (const [index, leaf] of leaves.entries()) {
      end += recordBytes((entries[index] as Uint8Array).length);
      batch.add(leaf, end);
    }
    await this.#repairOnFailure(async () => {
      // Hashes need no sync, because they can be rebuilt. But they must fit on the disk before the entries are acknowledged.
      const written = await Promise.allSettled([this.#writeEntries(records, bytes), batch.write(this.#files)]);
      for (const each of written) if (each.status === 'rejected') throw each.reason;
    });
    this.#extent = batch.extent();
    return { first: frontier.size };
  }

  async #writeEntries(records: Uint8Array, position: number): Promise<void> {
    const file = await this.#files.writer('entries');
    await file.write([records], position);
    await file.sync();
  }

  async #syncAll(): Promise<Extent> {
    await this.#repair();
    await this.#repairOnFailure(() => this.#files.syncDerived());
    return this.#extent;
  }

  /** If `work` fails, rolls back its writes, immediately if the disk permits. */
  async #repairOnFailure(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.#needsRepair = true;
      await this.#repair().catch(() => undefined);
      throw diskError(error);
    }
  }

  async #repair(): Promise<void> {
    if (!this.#needsRepair) return;
    const { bytes, frontier } = this.#extent;
    try {
      await this.#files.dropWriters();
      const entries = await this.#files.writer('entries');
      await entries.truncate(bytes);
      const { signal } = new AbortController();
      const { checkpoint } = this;
      const extent = await recover(this.#files, { checkpoint, known: [], mark: this.#mark, signal });
      if (extent.frontier.size !== frontier.size || !isSame(extent.frontier.root(), frontier.root())) {
        throw damaged('entries', `it had ${frontier.size} entries and now has ${extent.frontier.size} different ones`);
      }
      this.#needsRepair = false;
    } catch (error) {
      throw diskError(error);
    }
  }

  #hashes(size: number): TileHashes {
    return new TileHashes(size, (level, index, width) => this.#files.readHashes(level, index, width), this.#tiles);
  }

  async #readBundle(bundle: number, width: number): Promise<Buffer> {
    const extent = this.#extent;
    const isFull = bundle < hashesAt(1, extent.frontier.size);
    const end = isFull ? await this.#files.bundleStart(bundle + 1) : extent.bytes;
    return await this.#files.readBundle(bundle, width, end);
  }

  async #verifiedBundle(bundle: number, width: number): Promise<Uint8Array[]> {
    const read = [this.#readBundle(bundle, width), this.#files.readHashes(0, bundle, width)] as const;
    const [bytes, leaves] = await Promise.all(read);
    return verifiedEntries(bytes, leaves, bundle * TILE_WIDTH);
  }

  async #discard(before: number): Promise<void> {
    this.#pruned_bytes = (await this.#files.bundleStart(before / TILE_WIDTH)) + before * HASH_BYTES;
    await this.#files.discardBefore(before);
  }

  #expectKept(index: number): void {
    if (index >= this.first) return;
    throw new RonError('not_found', `entry ${index} was pruned: the log begins with entry ${this.first}`);
  }

  #expectSize(size: number): void {
    if (Number.isSafeInteger(size) && size >= 0 && size <= this.size) return;
    throw new RonError('not_found', `the log has ${this.size} entries, not ${size}`);
  }
}

function openCheckpoint(files: LogFiles, init: Omit<TransparencyLogInit, 'dir' | 'fs'>): Promise<CheckpointFile> {
  const keys = [...init.signers.map((signer) => signer.vkey), ...(init.vkeys ?? [])].map(parseVkey);
  return CheckpointFile.open({ fs: files.fs, dir: files.dir, origin: init.origin, keys });
}

export interface InspectedLog {
  /** Complete entries, including those after the checkpoint. */
  readonly size: number;
  readonly checkpoint: SignedCheckpoint | undefined;
}

/**
 * Runs the checks of `TransparencyLog.open` without changing or creating anything, and throws `audit_integrity` in the same
 * cases.
 */
export async function inspectLog(init: TransparencyLogInit): Promise<InspectedLog> {
  const { dir, fs = realFileSystem, known = [], signal } = init;
  const files = await LogFiles.open(fs, dir).catch(rethrowDisk);
  try {
    const checkpoint = (await openCheckpoint(files, init)).current;
    const mark = await readMark(fs, dir);
    return { checkpoint, size: await requireConsistent(files, { checkpoint, known, mark, signal }) };
  } catch (error) {
    return rethrowDisk(error);
  } finally {
    await files.close();
  }
}
