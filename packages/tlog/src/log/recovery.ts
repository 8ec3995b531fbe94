/**
 * Recovery when a log is opened: finds the end of the log and verifies it against the signed checkpoints.
 *
 * Contract: rejects with `audit_integrity`, before the first write, if the log is shorter than an expected checkpoint or has
 * another root at its size. Complete entries after the last checkpoint are kept (the crash preceded the next checkpoint);
 * bytes after the last complete entry are cut off. The derived files are rebuilt from the bundle of the last checkpoint on,
 * so their state after a crash does not matter.
 * Bound: reads the right edge of the tree and the entries since the last checkpoint; `verifyLog` reads every byte.
 * Cancellation: between two chunks of entries.
 */
import { RonError } from '@ron/kernel';
import type { Checkpoint } from '../note/checkpoint.ts';
import { Frontier } from '../tree/frontier.ts';
import { HASH_BYTES } from '../tree/hash.ts';
import { hashesName, OFFSET_BYTES, type LogFiles } from './log-files.ts';
import { requireAnnounced, type PruneMark } from './prune-mark.ts';
import { scanRecords } from './records.ts';
import { TileHashes } from '../tiles/tile-hashes.ts';
import { hashesAt, LEVELS_MAX, TILE_WIDTH } from '../tiles/tiles.ts';
import { TreeBatch, type Extent } from '../tree/tree-batch.ts';
import { isSame, rangeHash } from '../tree/tree.ts';

/** Leaves whose hashes are written together. */
const FLUSH_LEAVES = 16_384;

/** A checkpoint of the log that is stored elsewhere. */
export interface KnownCheckpoint extends Pick<Checkpoint, 'size' | 'root'> {
  /** Where it is stored, for messages. */
  readonly by?: string;
}

export interface ExpectedState {
  /** The last checkpoint in the log's own directory. */
  checkpoint: Checkpoint | undefined;
  /** Checkpoints that are stored elsewhere. */
  known: readonly KnownCheckpoint[];
  /** If older entries were removed. */
  mark: PruneMark | undefined;
  signal: AbortSignal;
}

export interface RecoveryInit extends ExpectedState {
  /** Called with the number of bytes that were cut off after the last complete entry. */
  onCut?(bytes: number): void;
}

export async function recover(files: LogFiles, init: RecoveryInit): Promise<Extent> {
  await requireConsistent(files, init);
  const { from, start, edge } = await scanStart(files, init.checkpoint);
  const entries = await files.writer('entries');
  // Unsynced bytes from before the crash count as entries from now on, so they must survive the next crash.
  await entries.sync();
  const bytes_found = await entries.size();
  const batch = new TreeBatch({ frontier: await Frontier.read(edge, from), bytes: start });
  for await (const records of scanRecords(entries, start, init.signal)) {
    for (const { leaf, end } of records) batch.add(leaf, end);
    if (batch.pending >= FLUSH_LEAVES) await batch.write(files);
  }
  await batch.write(files);
  const extent = batch.extent();
  await trim(files, extent);
  if (bytes_found > extent.bytes) {
    await entries.truncate(extent.bytes);
    await entries.sync();
    init.onCut?.(bytes_found - extent.bytes);
  }
  return extent;
}

/** Throws `audit_integrity` unless the log extends every expected checkpoint. Returns its number of entries. Reads only. */
export async function requireConsistent(
  files: LogFiles,
  { checkpoint, known, mark, signal }: ExpectedState,
): Promise<number> {
  const held: readonly KnownCheckpoint[] = checkpoint === undefined ? known : [checkpoint, ...known];
  if (!files.has('entries')) {
    for (const each of held) if (each.size > 0) throw shorter(0, each);
    return 0;
  }
  if (mark !== undefined) await requireAnnounced(files, mark, checkpoint?.size ?? 0);
  const { from, start, edge } = await scanStart(files, checkpoint);
  for (const each of held) {
    // A checkpoint within a removed tile cannot be recomputed. Every later one implies it.
    if (each.size < (mark?.before ?? 0) && each.size % TILE_WIDTH > 0) continue;
    if (each.size < from) expectRoot(each, await rangeHash(edge, 0, each.size));
  }
  const entries = await files.reader('entries');
  if ((await entries.size()) < start) throw shorter(undefined, checkpoint!);
  const frontier = await Frontier.read(edge, from);
  const ahead = held.filter(({ size }) => size >= from).toSorted((a, b) => a.size - b.size);
  const check = (): void => {
    while (ahead[0]?.size === frontier.size) expectRoot(ahead.shift()!, frontier.root());
  };
  check();
  for await (const records of scanRecords(entries, start, signal)) {
    for (const { leaf } of records) {
      frontier.append(leaf, () => undefined);
      check();
    }
  }
  const longest = ahead.at(-1);
  if (longest !== undefined) throw shorter(frontier.size, longest);
  return frontier.size;
}

/** Where to start reading entries: at the bundle in which the last checkpoint ends. */
async function scanStart(
  files: LogFiles,
  checkpoint: Checkpoint | undefined,
): Promise<{ from: number; start: number; edge: TileHashes }> {
  const from = Math.floor((checkpoint?.size ?? 0) / TILE_WIDTH) * TILE_WIDTH;
  const edge = new TileHashes(from, (level, index, width) => files.readHashes(level, index, width));
  return { from, start: await files.bundleStart(from / TILE_WIDTH), edge };
}

/** Truncates derived files to the existing entries: a crash or failure may have left hashes of a batch without entries. */
async function trim(files: LogFiles, { frontier: { size } }: Extent): Promise<void> {
  await cutTo(files, 'bundles', hashesAt(1, size) * OFFSET_BYTES);
  for (let level = 0; level <= LEVELS_MAX; level++) {
    await cutTo(files, hashesName(level), hashesAt(level, size) * HASH_BYTES);
  }
}

async function cutTo(files: LogFiles, name: string, bytes: number): Promise<void> {
  if (!files.has(name)) return;
  const file = await files.writer(name);
  if ((await file.size()) > bytes) await file.truncate(bytes);
}

function expectRoot({ size, root, by }: KnownCheckpoint, found: Uint8Array): void {
  if (isSame(found, root)) return;
  const details = { size, expected: hex(root), found: hex(found) };
  const message = `the first ${size} entries of the log differ from those that ${signedBy(by)}: its root is ${details.found}`;
  throw new RonError('audit_integrity', message, { details });
}

function shorter(found: number | undefined, { size, by }: KnownCheckpoint): RonError {
  const has = found === undefined ? 'fewer' : `only ${found}`;
  const message = `the log was truncated: it has ${has} entries, but ${size} ${signedBy(by)}`;
  return new RonError('audit_integrity', message, { details: { expected: size } });
}

const signedBy = (by: string | undefined): string =>
  by === undefined ? 'were signed' : `were signed according to ${by}`;
const hex = (hash: Uint8Array): string => Buffer.from(hash).toString('hex');
