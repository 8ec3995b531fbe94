/**
 * Writes a log out as the files of C2SP tlog-tiles, so that any web server can serve it and other tools can check it.
 *
 * Promise: what was copied before is not copied again, since tiles never change; the checkpoint comes last, when all that it
 * covers is there. Partial tiles of earlier copies are left. It does not verify: `verifyLog` of the copy does.
 * Bound: one resource in memory. Cancellation: between two resources; the copy can be taken up again.
 */
import { access, rename, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { makeDirectory, rethrowDisk } from '@ron/log';
import { RonError } from '@ron/kernel';
import { CHECKPOINT } from './checkpoint-file.ts';
import { decodeCheckpoint } from './checkpoint.ts';
import { parseNote } from './note.ts';
import { readWidth, type TileSource } from './tile-source.ts';
import { hashesAt, LEVELS_MAX, TILE_WIDTH, tilePath, widthAt, type Tile } from './tiles.ts';

export interface CopyLogInit {
  signal: AbortSignal;
}

/** Copies what the checkpoint of `source` covers to `dir`; how many resources were written. */
export async function copyLog(source: TileSource, dir: string, { signal }: CopyLogInit): Promise<number> {
  const note = await source.checkpoint(signal);
  if (note === undefined) throw new RonError('not_found', `${source.name} has no checkpoint`);
  const { size } = decodeCheckpoint(parseNote(note).text);
  let written = 0;
  for (const tile of tilesOf(size)) {
    signal.throwIfAborted();
    const path = join(dir, tilePath(tile));
    if (await isThere(path)) continue;
    const bytes = await readWidth(source, tile, signal);
    if (bytes === undefined) throw new RonError('audit_integrity', `${tilePath(tile)} is missing in ${source.name}`);
    await replaceFile(path, bytes);
    written += 1;
  }
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

/** Whole or not at all, so that a copy that was interrupted does not look like one. */
async function replaceFile(path: string, bytes: Uint8Array): Promise<void> {
  try {
    await makeDirectory(dirname(path), 0o777);
    await writeFile(`${path}.new`, bytes);
    await rename(`${path}.new`, path);
  } catch (error) {
    rethrowDisk(error);
  }
}
