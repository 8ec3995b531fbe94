/**
 * Exports a log as C2SP tlog-tiles files, which any web server can serve and other tools can verify.
 *
 * Contract: resources of an earlier export are not copied again, since tiles are immutable; the checkpoint is written last.
 * Partial tiles of earlier exports are left in place. Entries that were removed from the source are kept if an earlier
 * export has them; otherwise the copy has the mark of the source. The data is not verified: run `verifyLog` on the copy.
 * Bound: one resource in memory. Cancellation: between two resources; a later call resumes the copy.
 */
import { access, rename, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { makeDirectory, rethrowDisk } from '@ron/log';
import { RonError } from '@ron/kernel';
import { CHECKPOINT } from '../log/checkpoint-file.ts';
import { encodeMark, PRUNED } from '../log/prune-mark.ts';
import { decodeCheckpoint } from '../note/checkpoint.ts';
import { parseNote } from '../note/note.ts';
import { readWidth, type TileSource } from '../tiles/tile-source.ts';
import { hashesAt, LEVELS_MAX, TILE_WIDTH, tilePath, widthAt, type Tile } from '../tiles/tiles.ts';

export interface CopyLogInit {
  signal: AbortSignal;
}

/** Copies the resources that the checkpoint of `source` covers to `dir`. Returns the number of files written. */
export async function copyLog(source: TileSource, dir: string, { signal }: CopyLogInit): Promise<number> {
  const note = await source.checkpoint(signal);
  if (note === undefined) throw new RonError('not_found', `${source.name} has no checkpoint`);
  const { size } = decodeCheckpoint(parseNote(note).text);
  const mark = await source.mark(signal);
  let written = 0;
  let isWhole = true;
  for (const tile of tilesOf(size)) {
    signal.throwIfAborted();
    const path = join(dir, tilePath(tile));
    if (await isThere(path)) continue;
    const isRemoved = (tile.level === 'entries' || tile.level === 0) && tile.index * TILE_WIDTH < (mark?.before ?? 0);
    if (isRemoved) isWhole = false;
    if (isRemoved) continue;
    const bytes = await readWidth(source, tile, signal);
    if (bytes === undefined) throw new RonError('audit_integrity', `${tilePath(tile)} is missing from ${source.name}`);
    await replaceFile(path, bytes);
    written += 1;
  }
  if (mark !== undefined && !isWhole) await replaceFile(join(dir, PRUNED), encodeMark(mark));
  await replaceFile(join(dir, CHECKPOINT), note);
  return written;
}

/** Every tile and bundle of a tree. */
export function* tilesOf(size: number): Generator<Tile, void, void> {
  for (const level of ['entries', ...Array.from({ length: LEVELS_MAX }, (_, each) => each)] as const) {
    const count = Math.ceil(hashesAt(level, size) / TILE_WIDTH);
    for (let index = 0; index < count; index++) yield { level, index, width: widthAt(level, index, size) };
  }
}

async function isThere(path: string): Promise<boolean> {
  return await access(path).then(
    () => true,
    () => false,
  );
}

/** Replaces atomically, so that an interrupted copy leaves no partial file. */
async function replaceFile(path: string, bytes: Uint8Array): Promise<void> {
  try {
    await makeDirectory(dirname(path), 0o777);
    await writeFile(`${path}.new`, bytes);
    await rename(`${path}.new`, path);
  } catch (error) {
    rethrowDisk(error);
  }
}
