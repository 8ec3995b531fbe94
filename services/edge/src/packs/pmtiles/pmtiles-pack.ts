/**
 * An open PMTiles pack.
 *
 * Contract: as `OpenPack`: every byte is verified by the value of its 64 KiB group. Tiles are returned as they are stored.
 * [edge I-2] The file is never written; a replaced file is another pack.
 * Bound: a tile has at most 10 MiB. `tileNow` returns tiles that span at most two groups.
 */
import { zxyToTileId } from 'pmtiles';
import type { Batch } from '@ron/ingress';
import { RonError } from '@ron/kernel';
import type { GroupTree } from '../hashes/group-tree.ts';
import type { GroupHashes, OpenPack, PackInfo, Tile } from '../pack.ts';
import { decompress } from './decompress.ts';
import { decodeDirectory, DIRECTORY_BYTES_MAX, type Directory, type DirectoryLimits } from './directory.ts';
import type { Directories } from './directories.ts';
import type { PmtilesHeader, Section } from './header.ts';
import { DIRECTORIES_DEEP_MAX, rootLimits } from './tile-ids.ts';
import type { VerifiedFile } from './verified-file.ts';

const TILE_BYTES_MAX = 10 * 1024 * 1024;

export interface PmtilesPackInit {
  readonly info: PackInfo;
  readonly header: PmtilesHeader;
  readonly tree: GroupTree;
  readonly file: VerifiedFile;
  readonly directories: Directories;
  /** A number that no other pack has, for the directories. */
  readonly number: number;
}

export class PmtilesPack implements OpenPack {
  readonly info: PackInfo;
  readonly groups: GroupHashes;
  readonly #init: PmtilesPackInit;
  readonly #limits: DirectoryLimits;

  constructor(init: PmtilesPackInit) {
    this.#init = init;
    this.info = init.info;
    this.groups = init.tree;
    this.#limits = rootLimits(init.header);
  }

  get problem(): string | undefined {
    return this.#init.file.problem;
  }

  isInside(z: number, x: number, y: number): boolean {
    const [min, max] = this.#init.header.zooms;
    const side = 2 ** z;
    return z >= min && z <= max && x >= 0 && x < side && y >= 0 && y < side;
  }

  tileNow(z: number, x: number, y: number): Tile | undefined {
    const { header, directories, file, number } = this.#init;
    file.requireSound();
    if (!this.isInside(z, x, y)) return undefined;
    const id = zxyToTileId(z, x, y);
    let section: Section = header.root;
    for (let depth = 1; depth <= DIRECTORIES_DEEP_MAX; depth++) {
      const directory = directories.get(number, section.offset);
      const at = directory?.find(id) ?? -1;
      if (directory === undefined || at < 0) return undefined;
      section = this.#sectionOf(directory, at);
      if (directory.runs[at] === 0) continue;
      const bytes = file.bytesNow(section.offset, section.length);
      return bytes && { bytes, encoding: header.tile_encoding };
    }
    return undefined;
  }

  async tile(z: number, x: number, y: number, signal: AbortSignal): Promise<Tile | undefined> {
    this.#init.file.requireSound();
    if (!this.isInside(z, x, y)) return undefined;
    const place = await this.#find(zxyToTileId(z, x, y), signal);
    if (place === undefined) return undefined;
    if (place.length > TILE_BYTES_MAX) {
      throw new RonError('decompress_cap', `the tile has ${place.length} bytes, more than ${TILE_BYTES_MAX}`);
    }
    const bytes = await this.#init.file.bytes(place.offset, place.length, signal);
    return { bytes, encoding: this.#init.header.tile_encoding };
  }

  read(start: number, end: number, signal: AbortSignal): AsyncIterable<Batch> {
    return this.#init.file.batches(start, end, signal);
  }

  close(): Promise<void> {
    return this.#init.file.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** The place of a tile in the file. */
  async #find(id: number, signal: AbortSignal): Promise<Section | undefined> {
    let section: Section = this.#init.header.root;
    let limits = this.#limits;
    for (let depth = 1; depth <= DIRECTORIES_DEEP_MAX; depth++) {
      const directory = await this.#directory(section, limits, signal);
      const at = directory.find(id);
      if (at < 0) return undefined;
      section = this.#sectionOf(directory, at);
      if (directory.runs[at] !== 0) return section;
      limits = { ...limits, first_id: directory.ids[at]!, end_id: directory.leafEnd(at) };
    }
    throw new RonError('not_ready', 'the directories of the pack are nested too deeply: verify the pack again');
  }

  #directory({ offset, length }: Section, limits: DirectoryLimits, signal: AbortSignal): Promise<Directory> {
    const { directories, file, header, number } = this.#init;
    return directories.find(number, offset, signal, async (until) => {
      // A forged sidecar can state that the directories were verified.
      if (length > DIRECTORY_BYTES_MAX) {
        throw new RonError('not_ready', `a directory of the pack has ${length} bytes: verify the pack again`);
      }
      const stored = await file.bytes(offset, length, until);
      const bytes = await decompress(stored, header.directory_codec, DIRECTORY_BYTES_MAX, 'a directory');
      return await decodeDirectory(bytes, limits);
    });
  }

  /** The bytes of the file that an entry refers to. */
  #sectionOf(directory: Directory, at: number): Section {
    const { leaves, tiles } = this.#init.header;
    const base = directory.runs[at] === 0 ? leaves.offset : tiles.offset;
    return { offset: base + directory.offsets[at]!, length: directory.lengths[at]! };
  }
}
