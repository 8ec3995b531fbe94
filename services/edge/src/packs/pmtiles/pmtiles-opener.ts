/**
 * Opens PMTiles packs: verifies them in a thread, then reads them from the event loop.
 *
 * Contract: as `PackOpener`. The pack keeps its descriptor: a file that is renamed or replaced afterwards does not matter.
 * [edge I-7] The first mount of a file hashes it and verifies all directories in the thread, with rests; later mounts read the
 * sidecar.
 * Bound: one thread, `QUEUE_MAX` waiting calls, one cache of directories for all packs. Overflow: `busy`.
 * Cancellation: by the signal, which ends the thread. [edge I-4] A read of a pack fails after `pack_read`.
 */
import { BlockingPool, RonError } from '@ron/kernel';
import { DiskGate, gatedFileSystem, realFileSystem, type File, type FileSystem } from '@ron/log';
import { concurrency } from '../../concurrency.ts';
import { GroupTree } from '../hashes/group-tree.ts';
import type { OpenPackInit, PackInfo, PackOpener } from '../pack.ts';
import { Directories } from './directories.ts';
import { PartHashes } from './part-hashes.ts';
import { PmtilesPack } from './pmtiles-pack.ts';
import type { VerifiedPmtiles } from './thread/pmtiles-thread.ts';
import { VerifiedFile } from './verified-file.ts';

const QUEUE_MAX = 64;
/** Of the four threads of Node's pool, so that a disk that hangs leaves some for other files. */
const DISK_CALLS_MAX = 2;

/** Called if a sidecar cannot be written: the pack is usable, but the next start reads it in full. */
export type SidecarFailed = (path: string, problem: string) => void;

export interface PmtilesOpenerInit {
  /** Default: the disk, with a time limit for each call. */
  readonly fs?: FileSystem;
  readonly onSidecarFailed?: SidecarFailed;
}

export class PmtilesOpener implements PackOpener {
  readonly #fs: FileSystem;
  readonly #pool: BlockingPool;
  readonly #onSidecarFailed: SidecarFailed | undefined;
  readonly #directories = new Directories();
  readonly #hashes = new PartHashes();
  #packs = 0;

  constructor({ fs, onSidecarFailed }: PmtilesOpenerInit = {}) {
    this.#onSidecarFailed = onSidecarFailed;
    const late_ms = concurrency.deadlines.pack_read.ms;
    this.#fs = fs ?? gatedFileSystem(realFileSystem, new DiskGate({ calls_max: DISK_CALLS_MAX, late_ms }));
    const module = new URL('./thread/pmtiles-thread.ts', import.meta.url);
    this.#pool = new BlockingPool('pack.pmtiles', { threads: 1, queue_max: QUEUE_MAX, module });
  }

  /** Bytes of decoded directories in memory. */
  get directory_bytes(): number {
    return this.#directories.bytes;
  }

  async open({ path, sidecar, expect, onDamage, signal }: OpenPackInit): Promise<PmtilesPack> {
    const verified = await this.#pool.run<VerifiedPmtiles>('verifyPmtiles', [path, sidecar, expect], signal);
    const { sidecar_problem } = verified;
    if (sidecar_problem !== undefined) this.#onSidecarFailed?.(path, sidecar_problem);
    const tree = new GroupTree(verified.tree);
    const file = await this.#openSame(path, verified);
    const number = (this.#packs += 1);
    return new PmtilesPack({
      info: infoOf(verified),
      header: verified.header,
      tree,
      file: new VerifiedFile({ file, tree, hashes: this.#hashes, pack: number, onDamage }),
      directories: this.#directories,
      number,
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#pool.close();
  }

  /** Opens the file that was verified. */
  async #openSame(path: string, { identity, tree }: VerifiedPmtiles): Promise<File> {
    const file = await this.#fs.open(path, 'read');
    try {
      const isSame = (await file.identity?.()) === identity && (await file.size()) === tree.size;
      if (!isSame) throw new RonError('validation', 'the file was replaced while it was verified');
      return file;
    } catch (error) {
      await file.close();
      throw error;
    }
  }
}

function infoOf({ tree, header, tiles, metadata }: VerifiedPmtiles): PackInfo {
  const { zooms, bounds, center, tile_type } = header;
  return {
    format: 'pmtiles',
    address: tree.address,
    size: tree.size,
    tiles,
    zooms,
    bounds,
    center,
    tile_type,
    metadata,
  };
}
