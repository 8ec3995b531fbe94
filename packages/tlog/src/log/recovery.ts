/**
 * What a log does when it is opened: finds out how far it reaches, and whether it still is what was signed.
 *
 * Promise: refuses with `audit_integrity`, and changes nothing, when the log is shorter than a checkpoint it is held
 * against or has another root there: all of that is known before the first write. Whole entries behind the last checkpoint are kept (a crash came before the next
 * one); what follows the last whole entry is cut off. The files that follow from the entries are written anew from the
 * bundle on that the last checkpoint ends in, so what a crash left of them does not matter.
 * Bound: reads the right edge of the tree and the entries since the last checkpoint, not the whole log; `verifyLog` reads
 * every byte. Cancellation: between two chunks of entries.
 */
import { RonError } from '@ron/kernel';
import type { Checkpoint } from '../note/checkpoint.ts';
import { Frontier } from '../tree/frontier.ts';
import { HASH_BYTES } from '../tree/hash.ts';
import { hashesName, OFFSET_BYTES, type LogFiles } from './log-files.ts';
import { scanRecords } from './records.ts';
import { TileHashes } from '../tiles/tile-hashes.ts';
import { hashesAt, LEVELS_MAX, TILE_WIDTH } from '../tiles/tiles.ts';
import { TreeBatch, type Extent } from '../tree/tree-batch.ts';
import { isSame, rangeHash } from '../tree/tree.ts';

/** Leaves whose hashes are written together. */
const FLUSH_LEAVES = 16_384;

/** What somebody remembers of a log. */
export interface KnownCheckpoint extends Pick<Checkpoint, 'size' | 'root'> {
  /** Who remembers it, for messages. */
  readonly by?: string;
}

export interface HeldAgainst {
  /** The last checkpoint that the log itself has. */
  checkpoint: Checkpoint | undefined;
  /** What others remember of the log. */
  known: readonly KnownCheckpoint[];
  signal: AbortSignal;
}

export interface RecoveryInit extends HeldAgainst {
  /** Told how many bytes after the last whole entry are cut off. */
  onCut?(bytes: number): void;
}

export async function recover(files: LogFiles, init: RecoveryInit): Promise<Extent> {
  await expectGood(files, init);
  const { from, start, edge } = await beginning(files, init.checkpoint);
  const entries = await files.writer('entries');
  // What was written but not synced before a crash will count from now on, so the next crash must not take it.
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

/** Throws `audit_integrity` unless the log is what it is held against; gives how many entries it has. Reads only. */
export async function expectGood(files: LogFiles, { checkpoint, known, signal }: HeldAgainst): Promise<number> {
  const held: readonly KnownCheckpoint[] = checkpoint === undefined ? known : [checkpoint, ...known];
  if (!files.has('entries')) {
    for (const each of held) if (each.size > 0) throw shorter(0, each);
    return 0;
  }
  const { from, start, edge } = await beginning(files, checkpoint);
  for (const each of held) if (each.size < from) expectRoot(each, await rangeHash(edge, 0, each.size));
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

/** Where the entries begin that have to be read: with the bundle that the last checkpoint ends in. */
async function beginning(
  files: LogFiles,
  checkpoint: Checkpoint | undefined,
): Promise<{ from: number; start: number; edge: TileHashes }> {
  const from = Math.floor((checkpoint?.size ?? 0) / TILE_WIDTH) * TILE_WIDTH;
  const edge = new TileHashes(from, (level, index, width) => files.readHashes(level, index, width));
  return { from, start: await files.bundleStart(from / TILE_WIDTH), edge };
}

/** Cuts off what belongs to entries that are not there: hashes of a batch that a crash or a failure took back. */
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
  const message = `the first ${size} entries of the log are not those that ${signedBy(by)}: its root is ${details.found}`;
  throw new RonError('audit_integrity', message, { details });
}

function shorter(found: number | undefined, { size, by }: KnownCheckpoint): RonError {
  const has = found === undefined ? 'fewer' : `only ${found}`;
  const message = `the log was cut: it has ${has} entries, and ${size} ${signedBy(by)}`;
  return new RonError('audit_integrity', message, { details: { expected: size } });
}

const signedBy = (by: string | undefined): string => (by === undefined ? 'were signed' : `were signed, says ${by}`);
const hex = (hash: Uint8Array): string => Buffer.from(hash).toString('hex');
