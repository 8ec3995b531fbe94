/**
 * Opens the index of a volume, and the log that it is an index of.
 *
 * Promise: an index that knows more than the log holds, or that cannot be trusted, is thrown away and rebuilt from the log;
 * somebody is told. Where the directory is read-only, the index is kept in memory.
 * Bound: the index's pending entries. Cancellation: by the signal, while the log is replayed.
 */
import { accessSync, constants } from 'node:fs';
import { join } from 'node:path';
import { RonError } from '@ron/kernel';
import { isReadOnly, realFileSystem, SegmentLog } from '@ron/log';
import { LmdbStore } from './lmdb-store.ts';
import type { LocalVolumeInit } from './local-volume.ts';
import { MemoryStore } from './memory-store.ts';
import { PlaceIndex, type PlaceStore } from './place-index.ts';
import { enter, onDisk, placeOfAppended, placeOfHead } from './record-places.ts';

export interface IndexedLog {
  readonly log: SegmentLog;
  readonly index: PlaceIndex;
  /** The log had records that neither it nor the index knows any more. */
  readonly isDoubtful: boolean;
}

export async function openIndexedLog(init: LocalVolumeInit): Promise<IndexedLog> {
  let isDoubtful = false;
  const onLost = (): void => void (isDoubtful = true);
  const index = new PlaceIndex(await openStore(init, onLost));
  const { applied } = index;
  let seq_last = applied?.seq ?? 0;
  const log = await SegmentLog.open({
    dir: init.dir,
    signal: init.signal,
    ...(init.fs && { fs: init.fs }),
    ...(init.segment_bytes !== undefined && { segment_bytes: init.segment_bytes }),
    ...(init.queue_bytes_max !== undefined && { queue_bytes_max: init.queue_bytes_max }),
    ...(applied && { from: applied.position, seq_known: applied.seq }),
    onRecord: (head, position, body) => {
      const place = placeOfHead(head, position);
      enter(index, head.id, place, body);
      seq_last = Math.max(seq_last, head.seq);
      if (!index.isFull) return undefined;
      const reached = { segment: place.segment, offset: place.offset + onDisk(place) };
      return index.flush({ applied: () => ({ position: reached, seq: seq_last }) });
    },
    onDamage: (damage) => {
      // A torn tail was promised to nobody.
      if (damage.what === 'gap') onLost();
      init.onLogDamage?.(damage);
    },
    onDurable: (records, places) => {
      for (const [at, record] of records.entries()) {
        enter(index, record.id, placeOfAppended(record, places[at]!), record.payload);
      }
    },
  });
  return { log, index, isDoubtful };
}

/** Refused while another process has the directory: two that write to the same segments would lose both their writes. */
export async function lockOf({ dir, fs = realFileSystem }: LocalVolumeInit): Promise<Disposable | undefined> {
  // Nothing to hold where nobody can write, nor on a disk that no other process can see.
  if (fs.lock === undefined || !isWritable(dir)) return undefined;
  await fs.makeDir(dir);
  const lock = fs.lock(join(dir, 'lock'));
  if (lock === undefined) throw new RonError('conflict', `another process has ${dir} open: stop it first`);
  return lock;
}

/** The stored index, unless it knows more than the log holds: then the log decides, and somebody has to hear of it. */
async function openStore(init: LocalVolumeInit, onLost: () => void): Promise<PlaceStore> {
  if (init.places !== undefined) return init.places;
  const opened = openLmdb(init.dir);
  if (opened === undefined) return new MemoryStore();
  const { store, rebuilt } = opened;
  if (rebuilt !== undefined) init.onRebuild?.(rebuilt);
  const { applied } = store;
  if (applied === undefined || (await SegmentLog.reaches(init.dir, applied.position, init.fs))) return store;
  const { segment, offset } = applied.position;
  onLost();
  init.onRebuild?.(`segment ${segment} ends before offset ${offset}, which was durable: records are lost`);
  return await store.startAnew();
}

/** Undefined when the directory is read-only. */
function openLmdb(dir: string): ReturnType<typeof LmdbStore.open> | undefined {
  return isWritable(dir) ? LmdbStore.open(join(dir, 'index')) : undefined;
}

/** Asked before: what is thrown by removing a directory on a disk that takes no writes has no code. */
function isWritable(dir: string): boolean {
  try {
    accessSync(dir, constants.W_OK);
    return true;
  } catch (error) {
    return !isReadOnly(error);
  }
}
