/**
 * The segment files of a log: their names, their read descriptors, and who still needs one that is to go.
 *
 * Bound: `OPEN_MAX` idle read descriptors; a segment that is being read keeps its own. Overflow: the one that was used
 * least recently is closed. Cancellation: none.
 */
import { join } from 'node:path';
import { assert, RonError } from '@ron/kernel';
import type { File, FileSystem } from './file-system.ts';

const OPEN_MAX = 128;
const NAME = /^(\d{8})\.seg$/;

interface Segment {
  bytes: number;
  /** Bytes from the start that survive a crash. */
  durable_bytes: number;
  users: number;
  file: Promise<File> | undefined;
  /** Set when it is to be removed as soon as nobody uses it. */
  onFree: (() => void) | undefined;
}

export class SegmentFiles {
  readonly dir: string;
  readonly fs: FileSystem;
  /** By number; in order of last use, oldest first. */
  readonly #segments = new Map<number, Segment>();

  constructor(fs: FileSystem, dir: string) {
    this.fs = fs;
    this.dir = dir;
  }

  path(segment: number): string {
    return join(this.dir, `${String(segment).padStart(8, '0')}.seg`);
  }

  /** The numbers of the segments on disk, ascending. */
  async list(): Promise<number[]> {
    const names = await this.fs.list(this.dir);
    return names
      .map((name) => NAME.exec(name)?.[1])
      .filter((digits) => digits !== undefined)
      .map(Number)
      .toSorted((a, b) => a - b);
  }

  add(segment: number, bytes: number): void {
    assert(!this.#segments.has(segment), `segment ${segment} is new`);
    this.#segments.set(segment, { bytes, durable_bytes: bytes, users: 0, file: undefined, onFree: undefined });
  }

  /** How long a segment is, as far as it holds records. */
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
    return [...this.#segments.keys()].toSorted((a, b) => a - b);
  }

  /** Keeps a segment on disk until the lease is disposed of. */
  lease(segment: number): Disposable {
    const known = this.#known(segment);
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
    } finally {
      lease[Symbol.dispose]();
    }
  }

  /** Removes a segment once its last lease is gone, durably. */
  async remove(segment: number): Promise<void> {
    const known = this.#known(segment);
    assert(known.onFree === undefined, `segment ${segment} is removed once`);
    const freed = Promise.withResolvers<void>();
    known.onFree = freed.resolve;
    if (known.users === 0) freed.resolve();
    await freed.promise;
    this.#segments.delete(segment);
    await (await known.file)?.close();
    await this.fs.remove(this.path(segment));
    await this.fs.syncDir(this.dir);
  }

  async close(): Promise<void> {
    for (const segment of this.#segments.values()) {
      await (await segment.file?.catch(() => undefined))?.close();
      segment.file = undefined;
    }
  }

  #known(segment: number): Segment {
    const known = this.#segments.get(segment);
    if (known === undefined) throw new RonError('not_found', `segment ${segment} does not exist`);
    return known;
  }

  #open(segment: number): Promise<File> {
    const known = this.#known(segment);
    // Last used goes to the end of the map.
    this.#segments.delete(segment);
    this.#segments.set(segment, known);
    if (known.file === undefined) {
      const file = this.fs.open(this.path(segment), 'read');
      known.file = file;
      file.catch(() => {
        if (known.file === file) known.file = undefined;
      });
      this.#closeLeastRecent();
    }
    return known.file;
  }

  #closeLeastRecent(): void {
    const open = [...this.#segments.values()].filter((segment) => segment.file !== undefined);
    if (open.length <= OPEN_MAX) return;
    const victim = open.find((segment) => segment.users === 0);
    const file = victim?.file;
    if (victim === undefined || file === undefined) return;
    victim.file = undefined;
    void file.then((opened) => opened.close()).catch(() => undefined);
  }
}
