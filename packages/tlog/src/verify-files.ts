/**
 * The audit of the files that a log wrote: in one pass, everything that a checkpoint covers, and the entries behind it.
 *
 * What follows from entries that are not signed yet is left out: it is written anew when the log is opened.
 */
import { sched } from '@ron/kernel';
import type { SignedCheckpoint } from './checkpoint-file.ts';
import { DamageFound } from './damage.ts';
import { hashesName, type LogFiles } from './log-files.ts';
import { scanRecords } from './records.ts';
import { TILE_WIDTH } from './tiles.ts';
import { firstDifference, type TreeWalk, type WalkedTile } from './tree-walk.ts';
import type { VerifyLogInit } from './verify.ts';

/** Checks the files; how many whole entries lie behind the checkpoint. */
export async function verifyFiles(
  files: LogFiles,
  walk: TreeWalk,
  { size, root }: SignedCheckpoint,
  init: VerifyLogInit,
): Promise<number> {
  const entries = await files.reader('entries');
  // Taken first: a log that is running adds to it meanwhile.
  const bytes = await entries.size();
  let end = 0;
  let unsigned = 0;
  for await (const records of scanRecords(entries, 0, init.signal)) {
    const bundleEnds: number[] = [];
    for (const record of records) {
      end = record.end;
      if (walk.size === size) {
        unsigned += 1;
        continue;
      }
      walk.add(record.leaf);
      if (walk.size % TILE_WIDTH === 0) bundleEnds.push(end);
    }
    await compareBundleEnds(files, walk, bundleEnds);
    for (const tile of walk.takeFull()) await compareHashes(files, tile);
    init.onProgress?.(walk.size, size);
    await sched.pause('verify');
  }
  if (walk.size < size || end < bytes) {
    const entry = walk.size + unsigned;
    const reason = walk.size < size ? 'it was changed or cut' : 'it was changed, or a crash tore the last write';
    throw new DamageFound('entries', `entry ${entry}, at byte ${end} of ${bytes}, is not whole: ${reason}`);
  }
  for (const tile of walk.takeRest()) await compareHashes(files, tile);
  walk.expectRoot(root);
  return unsigned;
}

async function compareBundleEnds(files: LogFiles, walk: TreeWalk, ends: readonly number[]): Promise<void> {
  const bundles = Math.floor(walk.size / TILE_WIDTH) - ends.length;
  for (const [index, end] of ends.entries()) {
    const bundle = bundles + index;
    const found = await files.bundleStart(bundle + 1);
    if (found === end) continue;
    throw new DamageFound('bundles', `bundle ${bundle} ends at byte ${end} of the entries, not at ${found}`);
  }
}

async function compareHashes(files: LogFiles, { level, index, width, hashes }: WalkedTile): Promise<void> {
  const at = firstDifference(hashes, await files.readHashes(level, index, width));
  if (at === undefined) return;
  const hash = index * TILE_WIDTH + at;
  const of = level === 0 ? `entry ${hash}` : `tile ${hash} of the level below`;
  throw new DamageFound(hashesName(level), `hash ${hash} is not that of the ${of}`);
}
