/**
 * An open MBTiles pack.
 *
 * Contract: as `OpenPack`. Rows of MBTiles count from the south (TMS), those of this interface from the north. Device, inode, size
 * and mtime of the file are checked after each read; after a mismatch, or damage that SQLite finds, every read throws
 * `not_ready`.
 * Bound: one tile of at most 10 MiB for each call. Overflow: a larger tile is `decompress_cap`.
 */
import { NEVER, RonError } from '@ron/kernel';
import type { OpenPack, PackInfo, Tile } from '../pack.ts';
import type { ReadThreads } from './read-threads.ts';
import type { DatabaseFile, TileResult } from './thread/calls.ts';

const RETRY_AFTER_MS = 1000;

export interface MbtilesPackInit {
  readonly info: PackInfo;
  readonly file: DatabaseFile;
  readonly threads: ReadThreads;
  readonly onDamage: (problem: string) => void;
}

export class MbtilesPack implements OpenPack {
  readonly info: PackInfo;
  readonly #init: MbtilesPackInit;
  #file: DatabaseFile;
  #problem: string | undefined;
  #isClosed = false;

  constructor(init: MbtilesPackInit) {
    this.info = init.info;
    this.#init = init;
    this.#file = init.file;
  }

  get problem(): string | undefined {
    return this.#problem;
  }

  isInside(z: number, x: number, y: number): boolean {
    const [min, max] = this.info.zooms;
    return z >= min && z <= max && isIndex(x, 2 ** z) && isIndex(y, 2 ** z);
  }

  async tile(z: number, x: number, y: number, signal: AbortSignal): Promise<Tile | undefined> {
    this.#requireSound();
    if (!this.isInside(z, x, y)) return undefined;
    const found = await this.#init.threads.tile(this.#file, z, x, 2 ** z - 1 - y, signal);
    return this.#tileOf(found);
  }

  renamed(path: string): void {
    this.#file = { ...this.#file, path };
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await this.#init.threads.forget(this.#file.id, NEVER);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #tileOf(found: TileResult): Tile | undefined {
    if (found.kind === 'damaged') this.#damage(found.problem);
    // Another read may have found damage meanwhile.
    this.#requireSound();
    if (found.kind === 'too_large') throw tooLarge();
    return found.kind === 'tile' ? { bytes: found.bytes, encoding: encodingOf(found.bytes) } : undefined;
  }

  #damage(problem: string): void {
    if (this.#problem !== undefined) return;
    this.#problem = problem;
    this.#init.onDamage(problem);
  }

  #requireSound(): void {
    if (this.#problem === undefined) return;
    throw new RonError('not_ready', `the pack is damaged: ${this.#problem}`, { retry_after_ms: RETRY_AFTER_MS });
  }
}

const isIndex = (value: number, count: number): boolean => Number.isSafeInteger(value) && value >= 0 && value < count;

/** By the first bytes: MBTiles do not state it. */
function encodingOf(bytes: Uint8Array): 'gzip' | undefined {
  return bytes[0] === 0x1f && bytes[1] === 0x8b ? 'gzip' : undefined;
}

function tooLarge(): RonError {
  return new RonError('decompress_cap', 'the tile is above 10 MiB', { reason: 'decompress_cap' });
}
