/**
 * Tiles of mounted packs: from memory, from the page cache, or from disk.
 *
 * Contract: a tile in memory belongs to the mount that it was read from, and is not used once that is retired. `now` does not
 * wait; `read` waits for the disk within the limit on reads. A tile that is read twice is kept in memory as it is stored; the
 * first read only marks it, so that a scan costs no memory.
 * Bound: that of the memory; `SEEN_SLOTS` marks. Overflow: a newer mark replaces an older one.
 */
import { RonError } from '@ron/kernel';
import type { AssetRam } from '../cache/asset-cache.ts';
import type { Tile } from '../packs/pack.ts';
import type { Mount, Packs } from '../packs/packs.ts';
import { AssetEntry, costOf } from './asset-entry.ts';
import type { AssetKey } from './asset-key.ts';
import { tileKey, type AssetTarget } from './asset-target.ts';
import type { DiskReads } from './disk-reads.ts';
import { canonicalExt, inTier, isExtOf, storedTile } from './tile-answer.ts';

export type TileTarget = Extract<AssetTarget, { kind: 'tile' }>;

/** A power of two. */
const SEEN_SLOTS = 16_384;

export class PackTiles {
  readonly #packs: Pick<Packs, 'get' | 'absence'>;
  readonly #ram: AssetRam;
  readonly #reads: DiskReads;
  readonly #seen = new Int32Array(SEEN_SLOTS);

  constructor(packs: Pick<Packs, 'get' | 'absence'>, ram: AssetRam, reads: DiskReads) {
    this.#packs = packs;
    this.#ram = ram;
    this.#reads = reads;
  }

  /** The tile in memory. */
  cached(key: AssetKey): AssetEntry | undefined {
    const found = this.#ram.get(key);
    if (found === undefined) return undefined;
    if (found.owner?.isRetired !== true) return found.entry as AssetEntry;
    this.#ram.delete(key);
    return undefined;
  }

  /** The tile, if it can be read without waiting; undefined does not mean absent. For the canonical extension only. */
  now({ pack: name, place, ext }: TileTarget): AssetEntry | undefined {
    const mount = this.#packs.get(name);
    if (mount === undefined || canonicalExt(mount.pack.info.tile_type) !== ext) return undefined;
    const { z, x, y } = place;
    const tile = mount.pack.isInside(z, x, y) ? mount.pack.tileNow?.(z, x, y) : undefined;
    return tile && this.#remember(mount, place, tile, false);
  }

  /** Undefined: no tile at a valid place. Throws `not_found` for a place or an extension that the pack does not have. */
  async read(target: TileTarget, signal: AbortSignal): Promise<AssetEntry | undefined> {
    return await this.#read(target, signal, false);
  }

  /** The same, but the tile is neither marked as used nor kept in memory. */
  async peek(target: TileTarget, signal: AbortSignal): Promise<AssetEntry | undefined> {
    return await this.#read(target, signal, true);
  }

  async #read(target: TileTarget, signal: AbortSignal, isPeek: boolean): Promise<AssetEntry | undefined> {
    const mount = this.#packs.get(target.pack);
    if (mount === undefined) throw this.#packs.absence(target.pack);
    const { pack } = mount;
    const { z, x, y } = target.place;
    if (!isExtOf(pack.info.tile_type, target.ext))
      throw new RonError('not_found', `the tiles of the pack have the extension ${canonicalExt(pack.info.tile_type)}`);
    if (!pack.isInside(z, x, y)) throw new RonError('not_found', 'the place is outside of the pack');
    using _ = mount.hold();
    const key = tileKey(mount.name, target.place, canonicalExt(pack.info.tile_type));
    const found = isPeek ? (this.#ram.peek(key)?.asset?.entry as AssetEntry | undefined) : this.cached(key);
    if (found !== undefined) return found;
    const now = pack.tileNow?.(z, x, y);
    const tile = now ?? (await this.#reads.run(signal, () => pack.tile(z, x, y, signal)));
    const isOwn = now === undefined;
    if (isPeek) return tile && new AssetEntry(storedTile(tile, pack.info.tile_type, 'pack', isOwn), 'pack');
    return tile && this.#remember(mount, target.place, tile, isOwn);
  }

  #remember(mount: Mount, place: TileTarget['place'], tile: Tile, isOwn: boolean): AssetEntry {
    const { tile_type } = mount.pack.info;
    const source = storedTile(tile, tile_type, 'pack', isOwn);
    if (!mount.isRetired && this.#isSeen(mount.name, place)) {
      const kept = new AssetEntry(inTier(source, 'ram'), 'ram');
      const key = tileKey(mount.name, place, canonicalExt(tile_type));
      this.#ram.set(key, { entry: kept, meta: undefined, owner: mount.validity }, costOf(kept), {});
    }
    return new AssetEntry(source, 'pack');
  }

  /** Whether the tile was read lately. Two tiles with the same mark cost one entry in memory, no more. */
  #isSeen(name: string, { z, x, y }: TileTarget['place']): boolean {
    let mark = Math.imul(x, 0x9e37_79b1) ^ Math.imul(y, 0x85eb_ca6b) ^ Math.imul(z + 1, 0xc2b2_ae35);
    for (let i = 0; i < name.length; i += 1) mark = Math.imul(mark ^ name.charCodeAt(i), 0x0100_0193);
    const slot = (mark ^ (mark >>> 15)) & (SEEN_SLOTS - 1);
    const isSeen = this.#seen[slot] === mark;
    this.#seen[slot] = mark;
    return isSeen;
  }
}
