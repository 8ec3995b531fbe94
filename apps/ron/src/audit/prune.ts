/**
 * `ron audit prune`: removes old entries of the audit log permanently, after a copy if one is wanted.
 *
 * Contract: with `--archive` the whole log is copied first, as C2SP tlog-tiles files, and the copy is verified; a later
 * archive into the same directory continues it. Nothing is removed before the operator confirms.
 * Bound: one bundle in memory. Cancellation: by the signal, until kms removes the entries.
 */
import { parseDuration_ms } from '@ron/config';
import { sched } from '@ron/kernel/core';
import type { TileSource } from '@ron/tlog';
import { usage } from '../args.ts';
import { confirm } from '../confirm.ts';
import { CliError } from '../exits.ts';
import { columns, humanSize } from '../format.ts';
import type { Io } from '../io.ts';
import { withKms } from '../kms.ts';
import type { ConnectionValues } from '../resolve-service.ts';

export interface PruneValues extends ConnectionValues {
  readonly before?: string | undefined;
  readonly keep?: string | undefined;
  readonly archive?: string | undefined;
  readonly yes?: boolean | undefined;
}

interface OpenedLog {
  readonly source: TileSource;
  readonly vkeys: readonly string[];
}

export async function prune(
  values: PruneValues,
  io: Io,
  signal: AbortSignal,
  open: () => Promise<OpenedLog>,
): Promise<void> {
  const { source, vkeys } = await open();
  await using _ = source;
  const { size, first, before } = await rangeOf(values, source, signal);
  if (before <= first) throw new CliError('failed', `nothing to remove: the log begins with entry ${first}`);
  if (values.archive !== undefined) await archive(source, vkeys, values.archive, io, signal);
  const removed = `${before - first} of ${size - first} entries, from ${first} to ${before - 1}`;
  io.note(
    columns([
      ['removes', removed],
      ['archive', values.archive ?? 'none'],
    ]),
  );
  await confirm({ io, signal, values }, 'audit', 'The entries are removed permanently.');
  const done = await withKms(values, io, signal, (client) => client.pruneAudit(before, { signal }));
  const rows: [string, string][] = [
    ['removed', `entries before ${done.before}`],
    ['freed', humanSize(done.freed_bytes)],
    ['left', humanSize(done.log_bytes)],
  ];
  io.result(columns(rows), done);
}

/** The size of the log, its first entry, and the first entry to keep: the beginning of a bundle. */
async function rangeOf(
  { before, keep }: PruneValues,
  source: TileSource,
  signal: AbortSignal,
): Promise<{ size: number; first: number; before: number }> {
  const { BUNDLE_ENTRIES, decodeCheckpoint, parseNote } = await import('@ron/tlog');
  const note = await source.checkpoint(signal);
  if (note === undefined) throw new CliError('failed', 'the log has no checkpoint yet');
  const { size } = decodeCheckpoint(parseNote(note).text);
  const first = (await source.mark(signal))?.before ?? 0;
  if ((before === undefined) === (keep === undefined))
    throw usage({ name: 'audit' }, 'specify either --before or --keep');
  const index = before === undefined ? await firstSince(source, sinceOf(keep!), first, size, signal) : indexOf(before);
  return { size, first, before: Math.floor(Math.min(index, size) / BUNDLE_ENTRIES) * BUNDLE_ENTRIES };
}

function indexOf(text: string): number {
  if (/^\d{1,15}$/.test(text)) return Number(text);
  throw usage({ name: 'audit' }, `--before ${text} is not an index`);
}

function sinceOf(text: string): number {
  const keep_ms = parseDuration_ms(text);
  if (keep_ms === undefined) throw usage({ name: 'audit' }, `--keep ${text} is not a duration, such as 90d`);
  return sched.wall_ms() - keep_ms;
}

/** The index of a bundle's first entry: all entries of the bundles before it are older than `since_ms`. */
async function firstSince(
  source: TileSource,
  since_ms: number,
  first: number,
  size: number,
  signal: AbortSignal,
): Promise<number> {
  const { BUNDLE_ENTRIES } = await import('@ron/tlog');
  let [low, high] = [first / BUNDLE_ENTRIES, Math.floor(size / BUNDLE_ENTRIES)];
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if ((await lastTimeOf(source, middle, signal)) < since_ms) low = middle + 1;
    else high = middle;
  }
  return low * BUNDLE_ENTRIES;
}

/** The latest time in a full bundle. */
async function lastTimeOf(source: TileSource, bundle: number, signal: AbortSignal): Promise<number> {
  const { BUNDLE_ENTRIES, decodeBundle, tilePath } = await import('@ron/tlog');
  const bytes = await source.tile(tilePath({ level: 'entries', index: bundle, width: BUNDLE_ENTRIES }), signal);
  const entries = bytes === undefined ? undefined : decodeBundle(bytes);
  if (entries === undefined) throw new CliError('data', `bundle ${bundle} of the log cannot be read`, 'damaged');
  return Math.max(0, ...entries.map(timeOf));
}

function timeOf(entry: Uint8Array): number {
  try {
    const { time_ms, to } = JSON.parse(Buffer.from(entry).toString()) as Record<string, unknown>;
    return Number(time_ms ?? to ?? 0);
  } catch {
    return 0;
  }
}

async function archive(
  source: TileSource,
  vkeys: readonly string[],
  dir: string,
  io: Io,
  signal: AbortSignal,
): Promise<void> {
  const { copyLog, dirSource, verifyLog } = await import('@ron/tlog');
  const files = await copyLog(source, dir, { signal });
  await using copy = await dirSource(dir);
  const audit = await verifyLog(copy, vkeys, { signal });
  if (!audit.ok) {
    const { where, what } = audit.damage;
    throw new CliError('data', `the archive ${dir} is damaged at ${where}: ${what}; nothing was removed`, 'damaged');
  }
  io.note(`archived ${audit.checkpoint.size - audit.first} entries in ${dir} (${files} new files)`);
}
