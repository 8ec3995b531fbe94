/**
 * The segment files of a log: their names, their read descriptors, and the leases on them.
 *
 *     00000042-9f3a01bc.seg      number, and the salt of its checksums
 *
 * Contract: a segment for which `has` is true can be leased, and a leased segment stays on disk. A segment that is being
 * removed is unknown at once; readers with a lease continue.
 * Bound: `OPEN_MAX` idle read descriptors; a segment that is being read keeps its own. Overflow: the least recently used
 * descriptor is closed.
 */
import { join } from 'node:path';
import { assert, RonError, sched } from '@ron/kernel';
import { rethrowDisk } from '../disk/disk-error.ts';
import type { File, FileSystem } from '../disk/file-system.ts';
import { fileNameOf, resolveLeftovers, type SegmentName } from './segment-leftovers.ts';

const OPEN_MAX = 128;

interface Segment {
  readonly salt: number;
  bytes: number;
  /** Bytes from the start that survive a crash. */
  durable_bytes: number;
  users: number;
  /** The number of the last read of this segment among all reads. */
  used: number;
  file: Promise<File> | undefined;
  /** The open file of `file`. */
  opened: File | undefined;
  /** Set while the removal waits for the last lease. */
  onFree: (() => void) | undefined;
}

export class SegmentFiles {
  readonly dir: string;
  readonly fs: FileSystem;
  /** By number. */
  readonly #segments = new Map<number, Segment>();

  #uses = 0;
  /** Identifies the opened directory; undefined if the file system has no identities. */
  #identity: string | undefined;

  constructor(fs: FileSystem, dir: string) {
    this.fs = fs;
    this.dir = dir;
  }

  /** Creates the directory if it does not exist, and remembers its identity. */
  async openDir(): Promise<void> {
    await this.fs.makeDir(this.dir);
    this.#identity = await this.fs.identity?.(this.dir);
  }

  /**
   * Throws when a segment is no longer at its path, or the directory is not the opened one: deleted, moved, unmounted or
   * replaced. Open descriptors do not reveal that.
   */
  async requireThere(active?: { readonly segment: number; readonly identity: string | undefined }): Promise<void> {
    const path = active === undefined ? this.dir : this.path(active.segment);
    const identity = active === undefined ? this.#identity : active.identity;
    if (identity === undefined || this.fs.identity === undefined) return;
    if ((await this.fs.identity(path)) === identity) return;
    throw Object.assign(new Error(`ESTALE: ${path} was replaced`), { code: 'ESTALE' });
  }

  path(segment: number): string {
    return this.#pathOf(segment, this.#known(segment).salt);
  }

  /** The seed of the checksums in the headers of a segment. */
  saltOf(segment: number): number {
    return this.#known(segment).salt;
  }

  /** The segments on disk, in order of their numbers. Two files with one number are resolved first. */
  list(signal: AbortSignal): Promise<SegmentName[]> {
    return resolveLeftovers(this.fs, this.dir, signal);
  }

  add(segment: number, salt: number, bytes: number): void {
    assert(!this.#segments.has(segment), `segment ${segment} is new`);
    const durable_bytes = bytes;
    this.#segments.set(segment, {
      salt,
      bytes,
      durable_bytes,
      users: 0,
      used: 0,
      file: undefined,
      opened: undefined,
      onFree: undefined,
    });
  }

  /** Makes the file of a new segment, and its name durable. */
  async create(segment: number): Promise<File> {
    const salt = new DataView(sched.randomBytes(4).buffer).getUint32(0);
    const path = this.#pathOf(segment, salt);
    await this.requireThere();
    const file = await this.fs.create(path);
    try {
      await this.fs.syncDir(this.dir);
      await this.requireThere();
    } catch (error) {
      await file.close().catch(() => undefined);
      await this.fs.remove(path).catch(() => undefined);
      throw error;
    }
    this.add(segment, salt, 0);
    return file;
  }

  /** The length of a segment up to its last record. */
  bytesOf(segment: number): number {
    return this.#known(segment).bytes;
  }

  durableBytesOf(segment: number): number {
    return this.#known(segment).durable_bytes;
  }

  setDurableBytes(segment: number, bytes: number): void {
    this.#known(segment).durable_bytes = bytes;
  }

  setBytes(segment: number, bytes: number): void {
    this.#known(segment).bytes = bytes;
  }

  has(segment: number): boolean {
    const known = this.#segments.get(segment);
    return known !== undefined && known.onFree === undefined;
  }

  numbers(): number[] {
    return [...this.#segments.keys()].filter((segment) => this.has(segment)).toSorted((a, b) => a - b);
  }

  /** All segments together. */
  totals(): { readonly segments: number; readonly bytes: number } {
    let [segments, bytes] = [0, 0];
    for (const known of this.#segments.values()) {
      if (known.onFree !== undefined) continue;
      segments += 1;
      bytes += known.bytes;
    }
    return { segments, bytes };
  }

  /** Keeps a segment on disk until the lease is disposed of. */
  lease(segment: number): Disposable {
    const known = this.#known(segment);
    if (known.onFree !== undefined) throw new RonError('not_found', `segment ${segment} is being removed`);
    known.users += 1;
    let held = true;
    return {
      [Symbol.dispose]: () => {
        if (!held) return;
        held = false;
        known.users -= 1;
        if (known.users === 0) known.onFree?.();
      },
    };
  }

  /** Reads `length` bytes; fewer only at the end of the file. */
  async read(segment: number, into: Uint8Array, length: number, position: number): Promise<number> {
    const lease = this.lease(segment);
    try {
      const file = await this.#open(segment);
      return await file.read(into, length, position);
    } catch (error) {
      return rethrowDisk(error);
    } finally {
      lease[Symbol.dispose]();
    }
  }

  /** As `read`, without waiting; undefined if the segment is not open or the bytes are not in memory. */
  readNow(segment: number, into: Uint8Array, length: number, position: number): number | undefined {
    const known = this.#segments.get(segment);
    if (known === undefined || known.onFree !== undefined) return undefined;
    known.used = ++this.#uses;
    return known.opened?.readNow?.(into, length, position);
  }

  /** Removes a segment durably once its last lease is released. After a failure the segment still exists. */
  async remove(segment: number): Promise<void> {
    const known = this.#known(segment);
    assert(known.onFree === undefined, `segment ${segment} is removed once`);
    const freed = sched.park<void>('segment.free');
    known.onFree = freed.wake;
    if (known.users === 0) freed.wake();
    await freed.promise;
    await closeReader(known);
    try {
      await this.fs.remove(this.path(segment));
    } catch (error) {
      known.onFree = undefined;
      throw error;
    }
    this.#segments.delete(segment);
    await this.fs.syncDir(this.dir);
  }

  async close(): Promise<void> {
    for (const segment of this.#segments.values()) await closeReader(segment);
  }

  #pathOf(segment: number, salt: number): string {
    return join(this.dir, fileNameOf(segment, salt));
  }

  #known(segment: number): Segment {
    const known = this.#segments.get(segment);
    if (known === undefined) throw new RonError('not_found', `segment ${segment} does not exist`);
    return known;
  }

  #open(segment: number): Promise<File> {
    const known = this.#known(segment);
    known.used = ++this.#uses;
    if (known.file === undefined) {
      const file = this.fs.open(this.path(segment), 'read');
      known.file = file;
      file.then(
        (opened) => {
          if (known.file === file) known.opened = opened;
        },
        () => {
          if (known.file === file) known.file = undefined;
        },
      );
      this.#closeLeastRecent();
    }
    return known.file;
  }

  #closeLeastRecent(): void {
    const open = [...this.#segments.values()].filter((segment) => segment.file !== undefined);
    if (open.length <= OPEN_MAX) return;
    const idle = open.filter((segment) => segment.users === 0);
    if (idle.length === 0) return;
    const victim = idle.reduce((oldest, segment) => (segment.used < oldest.used ? segment : oldest));
    const file = victim.file!;
    victim.file = victim.opened = undefined;
    void file.then((opened) => opened.close()).catch(() => undefined);
  }
}

/** A read descriptor that cannot be closed has lost no byte. */
async function closeReader(segment: Segment): Promise<void> {
  const { file } = segment;
  segment.file = segment.opened = undefined;
  await file?.then((opened) => opened.close()).catch(() => undefined);
}
