/**
 * A log that can only grow, and whose signed checkpoints prove it: RFC 6962 over SHA-256, readable as C2SP tlog-tiles.
 *
 * Promise: an append that was acknowledged survives any crash, and indexes are contiguous. A checkpoint covers every append
 * that was acknowledged before it was asked for, nothing that is not durable is signed, and each one continues the one
 * before. A log that is opened is what it was when its last checkpoint was signed, and what `known` says, or it is not
 * opened at all (`audit_integrity`). One process has a log.
 * Bound: one append at a time, `WAITERS_MAX` wait; memory does not grow with the log. Overflow: `busy`.
 * Cancellation: an append that waits leaves by its signal; one that has begun ends by itself, written or failed as a whole.
 * A checkpoint that is aborted before it is written leaves the old one.
 * Failure: a full disk or a failed sync fails the call (`storage_full`, `not_ready`) and takes back what it wrote; the
 * next call goes on with new descriptors.
 */
import { join } from 'node:path';
import { assert, Mutex, orAborted, RonError } from '@ron/kernel';
import { diskError, realFileSystem, rethrowDisk, type FileSystem } from '@ron/log';
import { CheckpointFile, type SignedCheckpoint } from './checkpoint-file.ts';
import { leafHash } from '../tree/hash.ts';
import { damaged, LogFiles } from './log-files.ts';
import { parseVkey, signCheckpoint, type NoteSigner } from '../note/note-key.ts';
import { encodeRecords, recordBytes } from './records.ts';
import { expectGood, recover, type KnownCheckpoint } from './recovery.ts';
import { TileCache, TileHashes } from '../tiles/tile-hashes.ts';
import { decodeBundle, ENTRY_BYTES_MAX, hashesAt, parseTilePath, TILE_WIDTH, widthAt } from '../tiles/tiles.ts';
import { TreeBatch, type Extent } from '../tree/tree-batch.ts';
import { consistencyProof, inclusionProof, isSame, type InclusionProof } from '../tree/tree.ts';

/** Appends, and checkpoints, that may wait for the mutex. */
const WAITERS_MAX = 16;
/** Tiles that are kept for proofs: 1 MiB. */
const TILES_MAX = 64;
/** Bytes of the entries of one append. */
const APPEND_BYTES_MAX = 64 * 1024 * 1024;

export interface TransparencyLogInit {
  dir: string;
  /** The log's name in its checkpoints. */
  origin: string;
  /** Each signs every checkpoint. */
  signers: readonly NoteSigner[];
  /** Keys that signed earlier checkpoints and may no longer be among the signers. Default none. */
  vkeys?: readonly string[];
  fs?: FileSystem;
  /** What others remember of the log. Default nothing. */
  known?: readonly KnownCheckpoint[];
  signal: AbortSignal;
  /** Told how many bytes of an unfinished entry were cut off at the end. */
  onCut?(bytes: number): void;
}

/** Those who remember what was signed. */
export interface CheckpointMemory {
  /** Called before it is published: when this fails the checkpoint is not published. */
  before(checkpoint: SignedCheckpoint, signal: AbortSignal): Promise<unknown>;
  /** While it is being published. */
  beside?(checkpoint: SignedCheckpoint, signal: AbortSignal): Promise<unknown>;
}

export class TransparencyLog implements AsyncDisposable {
  readonly #init: TransparencyLogInit;
  readonly #files: LogFiles;
  readonly #checkpointFile: CheckpointFile;
  readonly #lock: Disposable | undefined;
  readonly #tiles = new TileCache(TILES_MAX);
  readonly #appends = new Mutex('log.append', { waiters_max: WAITERS_MAX });
  readonly #checkpoints = new Mutex('log.checkpoint', { waiters_max: WAITERS_MAX });
  /** What is durable. */
  #extent: Extent;
  /** A write or sync failed: what it wrote must be taken back before the next. */
  #isBroken = false;
  #closing: Promise<void> | undefined;

  private constructor(
    init: TransparencyLogInit,
    opened: { files: LogFiles; checkpointFile: CheckpointFile; extent: Extent; lock: Disposable | undefined },
  ) {
    this.#init = init;
    this.#files = opened.files;
    this.#checkpointFile = opened.checkpointFile;
    this.#extent = opened.extent;
    this.#lock = opened.lock;
  }

  static async open(init: TransparencyLogInit): Promise<TransparencyLog> {
    const { dir, fs = realFileSystem } = init;
    await fs.makeDir(dir).catch(rethrowDisk);
    const lock = fs.lock?.(join(dir, 'lock'));
    if (fs.lock !== undefined && lock === undefined) {
      throw new RonError('conflict', `another process has ${dir} open: stop it first`);
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
      const extent = await recover(files, {
        checkpoint: checkpointFile.current,
        known,
        signal,
        onCut: (bytes) => init.onCut?.(bytes),
      });
      return new TransparencyLog(init, { files, checkpointFile, extent, lock });
    } catch (error) {
      await files.close();
      throw error;
    }
  }

  /** Entries that are durable. */
  get size(): number {
    return this.#extent.frontier.size;
  }

  /** The last one that was signed. */
  get checkpoint(): SignedCheckpoint | undefined {
    return this.#checkpointFile.current;
  }

  /** Adds entries that get consecutive indexes from `first` on; resolves when they are durable. */
  async append(entries: readonly Uint8Array[], signal: AbortSignal): Promise<{ first: number }> {
    let bytes = 0;
    for (const entry of entries) {
      if (entry.length > ENTRY_BYTES_MAX) {
        throw new RonError('payload_too_large', `an entry has at most ${ENTRY_BYTES_MAX} bytes, not ${entry.length}`);
      }
      bytes += entry.length;
    }
    assert(entries.length > 0, 'an append has an entry');
    if (bytes > APPEND_BYTES_MAX) {
      throw new RonError('payload_too_large', `one append has at most ${APPEND_BYTES_MAX} bytes, not ${bytes}`);
    }
    return await this.#appends.run(signal, () => this.#append(entries));
  }

  /**
   * Signs what is durable and replaces the checkpoint. Nothing is signed when nothing is new. `memory` records it before
   * it is published.
   */
  async writeCheckpoint(signal: AbortSignal, memory?: CheckpointMemory): Promise<SignedCheckpoint> {
    return await this.#checkpoints.run(signal, async () => {
      // Its turn among the appends: it sees all that came before, and none writes while files are synced.
      const extent = await this.#appends.run(signal, () => this.#syncAll());
      const { origin, signers } = this.#init;
      const { size } = extent.frontier;
      const current = this.checkpoint;
      if (current?.size === size && this.#checkpointFile.isSignedByAll(signers)) return current;
      const checkpoint = { origin, size, root: extent.frontier.root() };
      const text = await orAborted(signCheckpoint(checkpoint, signers, signal), signal);
      await memory?.before({ ...checkpoint, text }, signal);
      const beside = memory?.beside?.({ ...checkpoint, text }, signal);
      const ended = await Promise.allSettled([this.#checkpointFile.replace(text), beside]);
      for (const each of ended) if (each.status === 'rejected') throw each.reason;
      return this.checkpoint!;
    });
  }

  /** Adds the signature lines of witnesses to the checkpoint over `size` entries; false when it is no longer the last. */
  async addCosignatures(size: number, lines: string, signal: AbortSignal): Promise<boolean> {
    return await this.#checkpoints.run(signal, async () => {
      if (this.checkpoint?.size !== size) return false;
      await this.#checkpointFile.addSignatures(lines);
      return true;
    });
  }

  /** That entry `index` is in the tree of the first `size` entries. Default: the tree of the last checkpoint. */
  async proof(index: number, size = this.checkpoint?.size ?? 0): Promise<InclusionProof> {
    this.#expectSize(size);
    const hashes = this.#hashes(size);
    const path = await inclusionProof(hashes, index, size).catch(rethrowDisk);
    return { index, size, leaf: await hashes.node(0, index), path };
  }

  /** That the first `from` entries are the beginning of the first `to`. */
  async consistency(from: number, to: number): Promise<Uint8Array[]> {
    this.#expectSize(to);
    return await consistencyProof(this.#hashes(to), from, to).catch(rethrowDisk);
  }

  /** A tile or bundle that the last checkpoint covers, by its path; undefined when there is none. */
  async readTile(path: string): Promise<Uint8Array | undefined> {
    const tile = parseTilePath(path);
    if (tile === undefined) return undefined;
    const { level, index, width } = tile;
    if (widthAt(level, index, this.checkpoint?.size ?? 0) < width) return undefined;
    const read = level === 'entries' ? this.#readBundle(index, width) : this.#files.readHashes(level, index, width);
    return await read.catch(rethrowDisk);
  }

  async entry(index: number): Promise<Uint8Array> {
    if (!Number.isSafeInteger(index) || index < 0 || index >= this.size) {
      throw new RonError('not_found', `there is no entry ${index} in a log of ${this.size}`);
    }
    const bundle = Math.floor(index / TILE_WIDTH);
    const within = index % TILE_WIDTH;
    const bytes = await this.#readBundle(bundle, within + 1).catch(rethrowDisk);
    const entry = decodeBundle(bytes)?.at(-1);
    const leaf = await this.#hashes(this.size).node(0, index).catch(rethrowDisk);
    if (entry === undefined || !isSame(leafHash(entry), leaf)) {
      throw damaged('entries', `entry ${index} does not have the hash that it was logged with`);
    }
    return entry;
  }

  /** Completes appends under way and closes the files. Signs nothing: the owner signs the last checkpoint. */
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
    await this.#mend();
    const { bytes, frontier } = this.#extent;
    const batch = new TreeBatch(this.#extent);
    const leaves = entries.map(leafHash);
    const records = encodeRecords(entries, leaves);
    let end = bytes;
    for (const [index, leaf] of leaves.entries()) {
      end += recordBytes((entries[index] as Uint8Array).length);
      batch.add(leaf, end);
    }
    await this.#orBroken(async () => {
      // The hashes need no sync: they can be made again. But there must be room for them before anything is acknowledged.
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
    await this.#mend();
    await this.#orBroken(() => this.#files.syncDerived());
    return this.#extent;
  }

  /** When `work` fails, what it wrote is taken back, at once if the disk lets us. */
  async #orBroken(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.#isBroken = true;
      await this.#mend().catch(() => undefined);
      throw diskError(error);
    }
  }

  async #mend(): Promise<void> {
    if (!this.#isBroken) return;
    const { bytes, frontier } = this.#extent;
    try {
      await this.#files.dropWriters();
      const entries = await this.#files.writer('entries');
      await entries.truncate(bytes);
      const { signal } = new AbortController();
      const extent = await recover(this.#files, { checkpoint: this.checkpoint, known: [], signal });
      if (extent.frontier.size !== frontier.size || !isSame(extent.frontier.root(), frontier.root())) {
        throw damaged('entries', `it held ${frontier.size} entries, and holds ${extent.frontier.size} others now`);
      }
      this.#isBroken = false;
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
  /** Whole entries, also those behind the checkpoint. */
  readonly size: number;
  readonly checkpoint: SignedCheckpoint | undefined;
}

/**
 * What `TransparencyLog.open` would look at before it changes anything: throws `audit_integrity` as it would. Reads only,
 * and makes nothing.
 */
export async function inspectLog(init: TransparencyLogInit): Promise<InspectedLog> {
  const { dir, fs = realFileSystem, known = [], signal } = init;
  const files = await LogFiles.open(fs, dir).catch(rethrowDisk);
  try {
    const checkpoint = (await openCheckpoint(files, init)).current;
    return { checkpoint, size: await expectGood(files, { checkpoint, known, signal }) };
  } catch (error) {
    return rethrowDisk(error);
  } finally {
    await files.close();
  }
}
