/**
 * The audit of the files that a log wrote: in one pass, everything that a checkpoint covers, and the entries behind it.
 *
 * What follows from entries that are not signed yet is left out: it is written anew when the log is opened. The log may be
 * running: a last entry that is not whole is looked at again before it counts as damage.
 */
import { sched, sleep } from '@ron/kernel';
import type { SignedCheckpoint } from '../log/checkpoint-file.ts';
import { DamageFound } from '../log/damage.ts';
import { hashesName, type LogFiles } from '../log/log-files.ts';
import { scanRecords, type FoundRecord } from '../log/records.ts';
import { TILE_WIDTH } from '../tiles/tiles.ts';
import { firstDifference, type TreeWalk, type WalkedTile } from '../tree/tree-walk.ts';
import type { VerifyLogInit } from './verify.ts';

const TRIES_MAX = 3;
/** For a write that is under way to end. */
const AGAIN_MS = 100;

/** Checks the files; how many whole entries lie behind the checkpoint. */
export async function verifyFiles(
  files: LogFiles,
  walk: TreeWalk,
  { size, root }: SignedCheckpoint,
  init: VerifyLogInit,
): Promise<number> {
  const entries = await files.reader('entries');
  let [end, unsigned, bytes] = [0, 0, 0];
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    if (tries > 0) await sleep(AGAIN_MS, init.signal, 'verify');
    bytes = await entries.size();
    for await (const records of scanRecords(entries, end, init.signal)) {
      const signed = records.slice(0, size - walk.size);
      await checkRecords(files, walk, signed);
      unsigned += records.length - signed.length;
      end = records.at(-1)!.end;
      init.onProgress?.(walk.size, size);
      await sched.pause('verify');
    }
    if (walk.size < size || end >= bytes) break;
  }
  if (walk.size < size || end < bytes) {
    const reason = walk.size < size ? 'it was changed or cut' : 'it was changed, or a crash tore the last write';
    const entry = walk.size + unsigned;
    throw new DamageFound('entries', `entry ${entry}, at byte ${end} of ${bytes}, is not whole: ${reason}`);
  }
  for (const tile of walk.takeRest()) await compareHashes(files, tile);
  walk.expectRoot(root);
  return unsigned;
}

async function checkRecords(files: LogFiles, walk: TreeWalk, records: readonly FoundRecord[]): Promise<void> {
  for (const { leaf, end } of records) {
    walk.add(leaf);
    if (walk.size % TILE_WIDTH > 0) continue;
    const bundle = walk.size / TILE_WIDTH - 1;
    const found = await files.bundleStart(bundle + 1);
    if (found === end) continue;
    throw new DamageFound('bundles', `bundle ${bundle} ends at byte ${end} of the entries, not at ${found}`);
  }
  for (const tile of walk.takeFull()) await compareHashes(files, tile);
}

async function compareHashes(files: LogFiles, { level, index, width, hashes }: WalkedTile): Promise<void> {
  const at = firstDifference(hashes, await files.readHashes(level, index, width));
  if (at === undefined) return;
  const hash = index * TILE_WIDTH + at;
  const of = level === 0 ? `entry ${hash}` : `tile ${hash} of the level below`;
  throw new DamageFound(hashesName(level), `hash ${hash} is not that of the ${of}`);
}
