/**
 * Opens the index of a volume, and the log that it is an index of.
 *
 * Contract: an index that is damaged, missing, of an earlier version, or that knows more than the log holds is thrown away
 * and rebuilt from the log; `onRebuild` is called with the reason. In a read-only directory the index is kept in memory.
 * Opening reads the footers and the part of the runs that is kept in memory, then replays the log after `applied`; every
 * step is asynchronous.
 * Bound: the index's pending entries. Cancellation: by the signal, while the log is replayed.
 */
import { join } from 'node:path';
import { RonError } from '@ron/kernel';
import { isReadOnly, realFileSystem, SegmentLog, type FileSystem } from '@ron/log';
import type { LocalVolumeInit } from '../volume/local-volume.ts';
import { memoryFiles } from './memory-files.ts';
import { PlaceIndex } from './place-index.ts';
import { enter, enterReplayed, onDisk, placeOfAppended, placeOfHead } from './record-places.ts';
import { RunDamaged } from './run-file.ts';
import { RunIndex } from './run-index.ts';

export interface IndexedLog {
  readonly log: SegmentLog;
  readonly index: PlaceIndex;
  readonly indexFs: FileSystem;
  /** Records were lost that neither the log nor the index can name. */
  readonly isDoubtful: boolean;
}

/** How the index is opened, apart from the volume's own settings. */
export interface OpenIndexInit extends LocalVolumeInit {
  isWritable: boolean;
  /** Called when a run turns out to be damaged after it was opened. */
  readonly onIndexDamage: (error: RunDamaged) => void;
}

/** The index lies in one of these; the other is empty, or holds one that is being rebuilt. */
export const INDEX_DIRS = ['index', 'index.next'] as const;

export async function openIndexedLog(init: OpenIndexInit): Promise<IndexedLog> {
  const fs = indexFilesOf(init);
  const damage: RunDamaged[] = [];
  const onIndexDamage = (error: RunDamaged): void => {
    damage.push(error);
    init.onIndexDamage(error);
  };
  try {
    return await openWith({ ...init, onIndexDamage }, fs);
  } catch (error) {
    // The log was replayed against an entry that is damaged.
    if (damage[0] === undefined) throw error;
    init.onRebuild?.(damage[0].message);
    await discardAll(init.dir, fs);
    return await openWith(init, fs);
  }
}

async function openWith(init: OpenIndexInit, fs: FileSystem): Promise<IndexedLog> {
  let isDoubtful = false;
  const onLost = (): void => void (isDoubtful = true);
  const index = new PlaceIndex({ runs: await openRuns(init, fs, onLost), onDamage: init.onIndexDamage });
  const { applied } = index;
  let seq_last = applied?.seq ?? 0;
  const opening = SegmentLog.open({
    dir: init.dir,
    signal: init.signal,
    ...(init.fs && { fs: init.fs }),
    ...(init.segment_bytes !== undefined && { segment_bytes: init.segment_bytes }),
    ...(init.queue_bytes_max !== undefined && { queue_bytes_max: init.queue_bytes_max }),
    ...(applied && { from: applied.position, seq_known: applied.seq }),
    onRecord: (head, position, body) => {
      const place = placeOfHead(head, position);
      const busy = enterReplayed(index, head.id, place, body);
      seq_last = Math.max(seq_last, head.seq);
      if (!index.isFull) return busy;
      const reached = { segment: place.segment, offset: place.offset + onDisk(place) };
      const flush = (): Promise<void> => index.flush(() => ({ position: reached, seq: seq_last }));
      return busy === undefined ? flush() : busy.then(flush);
    },
    onDamage: (damage) => {
      // A torn tail was never acknowledged.
      if (damage.what === 'gap') onLost();
      init.onLogDamage?.(damage);
    },
    onDurable: (records, places) => {
      for (const [at, record] of records.entries()) {
        enter(index, record.id, placeOfAppended(record, places[at]!), record.payload);
      }
    },
  });
  try {
    return { log: await opening, index, indexFs: fs, isDoubtful };
  } catch (error) {
    await index.close().catch(() => undefined);
    throw error;
  }
}

/** Refused while another process has the directory: two that write to the same segments would lose both their writes. */
export async function lockOf(
  { dir, fs = realFileSystem }: LocalVolumeInit,
  isWritable: boolean,
): Promise<Disposable | undefined> {
  // A read-only directory, or one that no other process can see, needs no lock.
  if (fs.lock === undefined || !isWritable) return undefined;
  await fs.makeDir(dir);
  const lock = fs.lock(join(dir, 'lock'));
  if (lock === undefined) throw new RonError('conflict', `another process has ${dir} open: stop it first`);
  return lock;
}

/** The stored index, unless it cannot be trusted or knows more than the log holds. */
async function openRuns(init: OpenIndexInit, fs: FileSystem, onLost: () => void): Promise<RunIndex> {
  const runs = await openStored(init, fs);
  const { applied } = runs;
  if (applied === undefined) return runs;
  const isReached = await SegmentLog.reaches(init.dir, applied.position, init.fs).catch(async (error: unknown) => {
    await runs.close();
    throw error;
  });
  if (isReached) return runs;
  const { segment, offset } = applied.position;
  onLost();
  init.onRebuild?.(`segment ${segment} ends before offset ${offset}, which was durable: records are lost`);
  await runs.close();
  return await openAnew(init.dir, fs);
}

const indexFilesOf = (init: OpenIndexInit): FileSystem =>
  init.indexFs ?? (init.isWritable ? (init.fs ?? realFileSystem) : memoryFiles());

async function openStored(init: OpenIndexInit, fs: FileSystem): Promise<RunIndex> {
  const found: RunIndex[] = [];
  try {
    for (const name of INDEX_DIRS) await openComplete(init, fs, join(init.dir, name), found);
  } catch (error) {
    for (const runs of found) await runs.close();
    if (!(error instanceof RunDamaged)) throw error;
    init.onRebuild?.(error.message);
    return await openAnew(init.dir, fs);
  }
  // A crash while a rebuilt index was adopted leaves both: the one that reflects more of the log counts.
  const [best, ...rest] = found.toSorted((a, b) => b.applied!.seq - a.applied!.seq);
  for (const runs of rest) {
    await runs.close();
    await runs.discard();
  }
  return best ?? (await openAnew(init.dir, fs));
}

async function openComplete(init: OpenIndexInit, fs: FileSystem, dir: string, into: RunIndex[]): Promise<void> {
  if (await isFormerVersion(fs, dir)) init.onRebuild?.('it was made by an earlier version');
  else if ((await namesIn(fs, dir)).length > 0) {
    const runs = await RunIndex.open({ fs, dir });
    if (runs.isComplete) into.push(runs);
    else await runs.close();
  }
}

async function openAnew(dir: string, fs: FileSystem): Promise<RunIndex> {
  await discardAll(dir, fs);
  return await RunIndex.open({ fs, dir: join(dir, INDEX_DIRS[0]) });
}

async function discardAll(dir: string, fs: FileSystem): Promise<void> {
  for (const name of INDEX_DIRS) {
    if ((await namesIn(fs, join(dir, name))).length > 0) await RunIndex.discard({ fs, dir: join(dir, name) });
  }
}

/** Earlier versions kept an LMDB file here. */
const isFormerVersion = async (fs: FileSystem, dir: string): Promise<boolean> =>
  (await namesIn(fs, dir)).some((name) => name.endsWith('.mdb'));

async function namesIn(fs: FileSystem, dir: string): Promise<string[]> {
  try {
    return await fs.list(dir);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    return [];
  }
}

/** Whether files can be made in a directory. A disk that is full, or fails otherwise, is not read-only. */
export async function isWritableDir(dir: string, fs: FileSystem = realFileSystem): Promise<boolean> {
  const path = join(dir, 'writable.tmp');
  try {
    await fs.makeDir(dir);
    const file = await fs.create(path);
    await file.close();
    await fs.remove(path);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') await fs.remove(path).catch(() => undefined);
    return !isReadOnly(error);
  }
}
