/**
 * A full audit: reads every byte of a log, recomputes the whole tree and compares it with the signed checkpoint.
 *
 * Contract: if the result is `ok`, every given key signed the checkpoint, and every entry, tile and bundle is covered by it.
 * Entries that were removed (`first`) are known by the hashes above them only, and an entry announces their removal.
 * Otherwise the result names the first damage. For files that a log wrote, entries after the last checkpoint are read too.
 * The audit changes nothing and may run concurrently with the log.
 * Bound: memory for one bundle and one tile per level, regardless of the log's size.
 * Cancellation: between two reads. A source that cannot be read is an error, not damage.
 */
import { isRonError, RonError, sched } from '@ron/kernel';
import { readCheckpoint, type SignedCheckpoint } from '../log/checkpoint-file.ts';
import { DamageError, type Damage } from '../log/damage.ts';
import { HASH_BYTES, leafHash } from '../tree/hash.ts';
import { parseVkey, verifyNote, type NoteKey } from '../note/note-key.ts';
import { parseNote } from '../note/note.ts';
import { announces, notAnnounced, type PruneMark } from '../log/prune-mark.ts';
import type { KnownCheckpoint } from '../log/recovery.ts';
import { readWidth, type TileSource } from '../tiles/tile-source.ts';
import { decodeBundle, TILE_WIDTH, tilePath, widthAt } from '../tiles/tiles.ts';
import { firstDifference, TreeWalk, type WalkedTile } from '../tree/tree-walk.ts';
import { isSame } from '../tree/tree.ts';
import { verifyFiles } from './verify-files.ts';

export interface AuditOk {
  readonly ok: true;
  readonly checkpoint: SignedCheckpoint;
  /** The keys that signed it. */
  readonly signed_by: readonly string[];
  /** The first entry that still exists; those before it were removed, which the log announces. */
  readonly first: number;
  /** Complete entries after the checkpoint, which are not signed yet. Known for files only. */
  readonly unsigned: number;
}

export interface AuditDamaged {
  readonly ok: false;
  readonly damage: Damage;
  /** Entries verified before the damage. */
  readonly checked: number;
}

export type Audit = AuditOk | AuditDamaged;

export interface VerifyLogInit {
  signal: AbortSignal;
  /** The expected name of the log. Default: any. */
  origin?: string;
  /** Whether all keys must have signed, or one is sufficient. Default 'all'. */
  signatures?: 'all' | 'any';
  /** Checkpoints that are stored elsewhere, which the log must extend. Default none. */
  known?: readonly KnownCheckpoint[];
  /** Called periodically. */
  onProgress?(checked: number, size: number): void;
}

/** A log is rarely pruned twice during one audit. */
const TRIES_MAX = 3;

export async function verifyLog(source: TileSource, vkeys: readonly string[], init: VerifyLogInit): Promise<Audit> {
  for (let tries = 1; ; tries++) {
    const { audit, mark } = await verifyOnce(source, vkeys, init);
    if (audit.ok || tries === TRIES_MAX) return audit;
    // A pruning may have removed entries during the audit.
    const now = await source.mark(init.signal).catch(() => mark);
    if (now?.before === mark?.before) return audit;
  }
}

interface Attempt {
  readonly audit: Audit;
  readonly mark: PruneMark | undefined;
}

async function verifyOnce(source: TileSource, vkeys: readonly string[], init: VerifyLogInit): Promise<Attempt> {
  const walk = new TreeWalk(init.known);
  let mark: PruneMark | undefined;
  try {
    const keys = vkeys.map(parseVkey);
    // Before the checkpoint, which covers the announcement.
    mark = await source.mark(init.signal);
    const { checkpoint, signed } = await checkpointOf(source, keys, init);
    if (mark !== undefined) {
      requireComparable(init.known ?? [], mark);
      await walkRemoved(source, walk, checkpoint, mark, init);
    }
    const unsigned =
      source.files === undefined
        ? await verifyTiles(source, walk, checkpoint, mark, init)
        : await verifyFiles(source.files, walk, checkpoint, mark, init);
    walk.expectKnown();
    const signed_by = signed.map((key) => key.vkey);
    return { audit: { ok: true, checkpoint, signed_by, first: mark?.before ?? 0, unsigned }, mark };
  } catch (error) {
    const damaged = (damage: Damage): Attempt => ({ audit: { ok: false, damage, checked: walk.size }, mark });
    if (error instanceof DamageError) return damaged(error.damage);
    // Files that are truncated or inconsistent.
    if (isRonError(error, 'audit_integrity')) return damaged({ where: source.name, what: error.message });
    throw error;
  }
}

async function checkpointOf(
  source: TileSource,
  keys: readonly NoteKey[],
  init: VerifyLogInit,
): Promise<{ checkpoint: SignedCheckpoint; signed: NoteKey[] }> {
  const bytes = await source.checkpoint(init.signal);
  if (bytes === undefined) throw new DamageError('checkpoint', 'it is missing');
  const checkpoint = trusted(bytes, keys, init.origin);
  const signed = verifyNote(parseNote(checkpoint.text), keys);
  const missing = keys.find((key) => !signed.includes(key));
  if (missing !== undefined && init.signatures !== 'any') {
    throw new DamageError('checkpoint', `${missing.name} did not sign it with the key ${hex32(missing.key_id)}`);
  }
  return { checkpoint, signed };
}

function trusted(bytes: Uint8Array, keys: readonly NoteKey[], origin: string | undefined): SignedCheckpoint {
  try {
    return readCheckpoint(bytes, origin, keys);
  } catch (error) {
    throw new DamageError('checkpoint', (error as Error).message);
  }
}

/** A checkpoint within a removed tile cannot be compared. */
function requireComparable(known: readonly KnownCheckpoint[], { before }: PruneMark): void {
  const lost = known.find(({ size }) => size < before && size % TILE_WIDTH > 0);
  if (lost === undefined) return;
  const { by = 'a known checkpoint', size } = lost;
  throw new RonError(
    'not_found',
    `${by} covers ${size} entries, but the log was pruned and begins with entry ${before}`,
  );
}

/** Adds the removed entries by the hashes above them. */
async function walkRemoved(
  source: TileSource,
  walk: TreeWalk,
  { size }: SignedCheckpoint,
  mark: PruneMark,
  { signal }: VerifyLogInit,
): Promise<void> {
  if (mark.entry >= size) throw notAnnounced(mark);
  const count = mark.before / TILE_WIDTH;
  for (let index = 0; index * TILE_WIDTH < count; index++) {
    signal.throwIfAborted();
    const tile = { level: 1, index, width: widthAt(1, index, size) } as const;
    const bytes = await readWidth(source, tile, signal);
    if (bytes === undefined) throw new DamageError(tilePath(tile), 'it is missing');
    const width = Math.min(TILE_WIDTH, count - index * TILE_WIDTH);
    for (let at = 0; at < width; at++) walk.addTile(bytes.subarray(at * HASH_BYTES, (at + 1) * HASH_BYTES));
    for (const full of walk.takeFull()) await compareTile(source, full, size, signal);
    await sched.pause('verify');
  }
}

/** Verifies the public resources. */
async function verifyTiles(
  source: TileSource,
  walk: TreeWalk,
  checkpoint: SignedCheckpoint,
  mark: PruneMark | undefined,
  init: VerifyLogInit,
): Promise<number> {
  const { size, root } = checkpoint;
  for (let index = walk.size / TILE_WIDTH; index * TILE_WIDTH < size; index++) {
    init.signal.throwIfAborted();
    const width = widthAt('entries', index, size);
    const entries = await bundleOf(source, index, width, init.signal);
    for (const entry of entries) walk.add(leafHash(entry));
    if (mark !== undefined && Math.floor(mark.entry / TILE_WIDTH) === index) {
      if (!announces(entries[mark.entry % TILE_WIDTH]!, mark.before)) throw notAnnounced(mark);
    }
    for (const tile of walk.takeFull()) await compareTile(source, tile, size, init.signal);
    init.onProgress?.(walk.size, size);
    await sched.pause('verify');
  }
  for (const tile of walk.takeRest()) await compareTile(source, tile, size, init.signal);
  walk.expectRoot(root);
  return 0;
}

async function bundleOf(
  source: TileSource,
  index: number,
  width: number,
  signal: AbortSignal,
): Promise<readonly Uint8Array[]> {
  const tile = { level: 'entries', index, width } as const;
  const path = tilePath(tile);
  const bytes = await readWidth(source, tile, signal);
  if (bytes === undefined) throw new DamageError(path, 'it is missing');
  const entries = decodeBundle(bytes);
  if (entries === undefined) throw new DamageError(path, 'its last entry is truncated');
  if (entries.length !== width) throw new DamageError(path, `it has ${entries.length} entries, not ${width}`);
  return entries;
}

async function compareTile(source: TileSource, tile: WalkedTile, size: number, signal: AbortSignal): Promise<void> {
  const path = tilePath(tile);
  const found = await readWidth(source, tile, signal);
  if (found === undefined) throw new DamageError(path, 'it is missing');
  const at = firstDifference(tile.hashes, found);
  if (at === undefined) return;
  const { level, index } = tile;
  if (level > 0) throw new DamageError(path, `its hash ${at} does not match tile ${index * TILE_WIDTH + at} below`);
  const entry = index * TILE_WIDTH + at;
  // If the tile matches its parent tile, the entry is at fault; otherwise the tile is.
  const isTileGood = await fitsParent(source, tile, found, size, signal);
  const where = isTileGood ? tilePath({ ...tile, level: 'entries' }) : path;
  throw new DamageError(
    where,
    isTileGood ? `entry ${entry} was modified` : `it does not match the hash of entry ${entry}`,
  );
}

async function fitsParent(
  source: TileSource,
  tile: WalkedTile,
  found: Uint8Array,
  size: number,
  signal: AbortSignal,
): Promise<boolean> {
  if (tile.width < TILE_WIDTH || found.length !== tile.hashes.length) return false;
  const index = Math.floor(tile.index / TILE_WIDTH);
  const at = (tile.index % TILE_WIDTH) * HASH_BYTES;
  const above = await readWidth(source, { level: 1, index, width: widthAt(1, index, size) }, signal);
  return above !== undefined && isSame(TreeWalk.rootOfTile(found), above.subarray(at, at + HASH_BYTES));
}

const hex32 = (value: number): string => value.toString(16).padStart(8, '0');
