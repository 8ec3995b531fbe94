/**
 * Verifies the files that a log wrote, in one pass: everything that a checkpoint covers, and the entries after it.
 *
 * Derived data of unsigned entries is not verified: it is rebuilt when the log is opened. The log may be running, so an
 * incomplete last entry is read again before it counts as damage.
 */
import { sched, sleep } from '@ron/kernel';
import type { SignedCheckpoint } from '../log/checkpoint-file.ts';
import { DamageError } from '../log/damage.ts';
import { hashesName, type LogFiles } from '../log/log-files.ts';
import { requireAnnounced, type PruneMark } from '../log/prune-mark.ts';
import { scanRecords, type FoundRecord } from '../log/records.ts';
import { TILE_WIDTH } from '../tiles/tiles.ts';
import { firstDifference, type TreeWalk, type WalkedTile } from '../tree/tree-walk.ts';
import type { VerifyLogInit } from './verify.ts';

const TRIES_MAX = 3;
/** Time for a write in progress to complete. */
const RETRY_MS = 100;

/** Verifies the files. Returns the number of complete entries after the checkpoint. */
export async function verifyFiles(
  files: LogFiles,
  walk: TreeWalk,
  { size, root }: SignedCheckpoint,
  mark: PruneMark | undefined,
  init: VerifyLogInit,
): Promise<number> {
  const entries = await files.reader('entries');
  if (mark !== undefined) await requireAnnounced(files, mark, size);
  let [end, unsigned, bytes] = [await files.bundleStart(walk.size / TILE_WIDTH), 0, 0];
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    if (tries > 0) await sleep(RETRY_MS, init.signal, 'verify');
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
    const reason =
      walk.size < size ? 'it was modified or truncated' : 'it was modified, or a crash tore the last write';
    const entry = walk.size + unsigned;
    throw new DamageError('entries', `entry ${entry}, at byte ${end} of ${bytes}, is incomplete or corrupt: ${reason}`);
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
    throw new DamageError('bundles', `bundle ${bundle} ends at byte ${end} of the entries, not at ${found}`);
  }
  for (const tile of walk.takeFull()) await compareHashes(files, tile);
}

async function compareHashes(files: LogFiles, { level, index, width, hashes }: WalkedTile): Promise<void> {
  const at = firstDifference(hashes, await files.readHashes(level, index, width));
  if (at === undefined) return;
  const hash = index * TILE_WIDTH + at;
  const of = level === 0 ? `entry ${hash}` : `tile ${hash} of the level below`;
  throw new DamageError(hashesName(level), `hash ${hash} does not match ${of}`);
}
