/**
 * The file `pruned`: the minimum index of a log (C2SP tlog-tiles) whose older entries were removed.
 *
 * Contract: entries and leaf hashes below `before`, a multiple of 256, may be missing; everything from there on must exist.
 * The entry at index `entry` announces the removal, so a mark that was added later to hide a removal is found: that entry
 * is missing. Such an entry is JSON with `op: 'prune'` and the same `before`.
 * Bound: `MARK_BYTES_MAX`.
 */
import { join } from 'node:path';
import { readWhole, writeWhole, type FileSystem } from '@ron/log';
import { decodeBundle, TILE_WIDTH } from '../tiles/tiles.ts';
import { damaged, type LogFiles } from './log-files.ts';

export const PRUNED = 'pruned';
export const MARK_BYTES_MAX = 256;

export interface PruneMark {
  /** The index of the first entry that still exists. */
  readonly before: number;
  /** The index of the entry that announces the removal. */
  readonly entry: number;
}

export function encodeMark({ before, entry }: PruneMark): Buffer {
  return Buffer.from(`${JSON.stringify({ before, entry })}\n`);
}

/** Throws `audit_integrity` if it is malformed. */
export function decodeMark(bytes: Uint8Array): PruneMark {
  const mark = parsed(bytes);
  const { before, entry } = mark ?? {};
  const isValid =
    Number.isSafeInteger(before) && Number.isSafeInteger(entry) && (before as number) > 0 && (entry as number) >= 0;
  if (!isValid || (before as number) % TILE_WIDTH !== 0 || (entry as number) < (before as number)) {
    throw damaged(PRUNED, 'it does not name the first entry and the entry that announces it');
  }
  return { before, entry } as PruneMark;
}

export async function readMark(fs: FileSystem, dir: string): Promise<PruneMark | undefined> {
  const bytes = await readWhole(fs, join(dir, PRUNED), MARK_BYTES_MAX);
  return bytes === undefined ? undefined : decodeMark(bytes);
}

export async function writeMark(fs: FileSystem, dir: string, mark: PruneMark): Promise<void> {
  await writeWhole(fs, join(dir, PRUNED), encodeMark(mark));
}

/** Whether an entry announces that all entries before `before` are removed. */
export function announces(entry: Uint8Array, before: number): boolean {
  const found = parsed(entry);
  return found?.['op'] === 'prune' && found['before'] === before;
}

/** Throws `audit_integrity` unless the log contains the entry that the mark names, among the first `size`. */
export async function requireAnnounced(files: LogFiles, mark: PruneMark, size: number): Promise<void> {
  const bundle = Math.floor(mark.entry / TILE_WIDTH);
  if (mark.entry < size) {
    const width = (mark.entry % TILE_WIDTH) + 1;
    const entries = decodeBundle(await files.readBundle(bundle, width, await files.bundleEnd(bundle)));
    const entry = entries?.at(-1);
    if (entry !== undefined && announces(entry, mark.before)) return;
  }
  throw notAnnounced(mark);
}

export function notAnnounced({ before, entry }: PruneMark): Error {
  return damaged(PRUNED, `entries before ${before} are missing, but entry ${entry} does not announce that`);
}

function parsed(bytes: Uint8Array): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(Buffer.from(bytes).toString());
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}
