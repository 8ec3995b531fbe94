/**
 * What a log does when it is opened: finds out how far it reaches, and whether it still is what was signed.
 *
 * Promise: refuses with `audit_integrity`, and changes nothing, when the log is shorter than a checkpoint it is held
 * against or has another root there. Whole entries behind the last checkpoint are kept (a crash came before the next
 * one); what follows the last whole entry is cut off. The files that follow from the entries are written anew from the
 * bundle on that the last checkpoint ends in, so what a crash left of them does not matter.
 * Bound: reads the right edge of the tree and the entries since the last checkpoint, not the whole log; `verifyLog` reads
 * every byte. Cancellation: between two chunks of entries.
 */
import { RonError } from '@ron/kernel';
import type { Checkpoint } from './checkpoint.ts';
import { Frontier } from './frontier.ts';
import { HASH_BYTES } from './hash.ts';
import { hashesName, OFFSET_BYTES, type LogFiles } from './log-files.ts';
import { scanRecords } from './records.ts';
import { TileHashes } from './tile-hashes.ts';
import { hashesAt, LEVELS_MAX, TILE_WIDTH } from './tiles.ts';
import { TreeBatch, type Extent } from './tree-batch.ts';
import { isSame, rangeHash } from './tree.ts';

/** Leaves whose hashes are written together. More than a tile, so that the last checkpoint is checked before a write. */
const FLUSH_LEAVES = 16_384;

export interface RecoveryInit {
  /** The last checkpoint that the log itself has. */
  checkpoint: Checkpoint | undefined;
  /** What others remember of the log. */
  known: readonly Checkpoint[];
  signal: AbortSignal;
  /** Told how many bytes after the last whole entry are cut off. */
  onCut?(bytes: number): void;
}

export async function recover(files: LogFiles, init: RecoveryInit): Promise<Extent> {
  const { checkpoint, signal } = init;
  const held = checkpoint === undefined ? init.known : [checkpoint, ...init.known];
  for (const { size } of held) if (size > 0 && !files.has('entries')) throw shorter(0, size);
  const from = Math.floor((checkpoint?.size ?? 0) / TILE_WIDTH) * TILE_WIDTH;
  const edge = new TileHashes(from, (level, index, width) => files.readHashes(level, index, width));
  for (const each of held) if (each.size < from) expectRoot(each, await rangeHash(edge, 0, each.size));

  const entries = await files.writer('entries');
  // What was written but not synced before a crash will count from now on, so the next crash must not take it.
  await entries.sync();
  const start = await files.bundleStart(from / TILE_WIDTH);
  const bytes_found = await entries.size();
  if (bytes_found < start) throw shorter(undefined, checkpoint?.size ?? 0);

  const batch = new TreeBatch({ frontier: await Frontier.read(edge, from), bytes: start });
  const check = (): void => {
    for (const each of held) if (each.size === batch.size) expectRoot(each, batch.root());
  };
  check();
  for await (const records of scanRecords(entries, start, signal)) {
    for (const { leaf, end } of records) {
      batch.add(leaf, end);
      check();
    }
    if (batch.pending >= FLUSH_LEAVES) await batch.write(files);
  }
  for (const { size } of held) if (batch.size < size) throw shorter(batch.size, size);
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

function expectRoot({ size, root }: Checkpoint, found: Uint8Array): void {
  if (isSame(found, root)) return;
  const details = { size, expected: hex(root), found: hex(found) };
  const message = `the first ${size} entries of the log are not those that were signed: its root is ${details.found}`;
  throw new RonError('audit_integrity', message, { details });
}

function shorter(found: number | undefined, expected: number): RonError {
  const has = found === undefined ? 'fewer' : `only ${found}`;
  const message = `the log was cut: it has ${has} entries, and ${expected} were signed`;
  return new RonError('audit_integrity', message, { details: { expected } });
}

const hex = (hash: Uint8Array): string => Buffer.from(hash).toString('hex');
