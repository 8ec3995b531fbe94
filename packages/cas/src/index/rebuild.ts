/**
 * Rebuilds the index of an open volume from its log, beside the damaged one.
 *
 * Contract: look-ups go on with the damaged index meanwhile; only those that meet the damage fail. Records that become
 * durable are entered in both. A crash at any point leaves one usable index or none, and none means that the next start
 * rebuilds it. Nothing may move records or remove segments while it runs.
 * Bound: the pending entries of a second index. Cancellation: by the signal, between two reads.
 */
import { join } from 'node:path';
import type { FileSystem, SegmentLog } from '@ron/log';
import { INDEX_DIRS } from './open-index.ts';
import { EMPTY_LOG, PlaceIndex } from './place-index.ts';
import { enterReplayed, onDisk, placeOfHead } from './record-places.ts';
import { RunIndex } from './run-index.ts';

export interface RebuildInit {
  log: SegmentLog;
  index: PlaceIndex;
  /** Where the files of the index lie. */
  fs: FileSystem;
  /** The volume's. */
  dir: string;
  signal: AbortSignal;
}

export async function rebuildIndex(init: RebuildInit): Promise<void> {
  const { log, index, fs, signal } = init;
  const dir = INDEX_DIRS.map((name) => join(init.dir, name)).find((each) => each !== index.runs.dir)!;
  await RunIndex.discard({ fs, dir });
  const next = new PlaceIndex({ runs: await RunIndex.open({ fs, dir }) });
  // In one step with the list of segments: records that become durable later are entered in both.
  index.beginRebuild(next);
  try {
    for (const segment of log.files.numbers()) await replay(init, next, segment);
    signal.throwIfAborted();
    await index.adoptRebuilt(() => log.durable);
  } catch (error) {
    await index.cancelRebuild();
    throw error;
  }
}

async function replay({ log, signal }: RebuildInit, next: PlaceIndex, segment: number): Promise<void> {
  const ignore = (): void => undefined;
  await log.scanSegment(
    segment,
    (head, position, body) => {
      const place = placeOfHead(head, position);
      // The end of the segment that is being written may still be lost.
      if (place.offset + onDisk(place) > log.files.durableBytesOf(segment)) return undefined;
      const busy = enterReplayed(next, head.id, place, body);
      if (!next.isFull) return busy;
      const flush = (): Promise<void> => next.flush(() => EMPTY_LOG);
      return busy === undefined ? flush() : busy.then(flush);
    },
    ignore,
    signal,
  );
}
