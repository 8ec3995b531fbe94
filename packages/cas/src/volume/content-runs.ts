/**
 * Reads contents that are adjacent on disk with one system call.
 *
 * Contract: contents in the order of the ids, each verified against its id. A content that is not at the place in the index
 * is read by `contentOf`. A batch is valid until the next is requested.
 * Bound: `SPAN_BYTES_MAX` for a batch, and never more than the requested ids. Cancellation: by the signal, between two reads.
 */
import { RonError } from '@ron/kernel';
import { decodeHeader, HEADER_BYTES, type SegmentLog } from '@ron/log';
import { hexOf } from './hex.ts';
import type { Place } from '../index/entry.ts';
import { onDisk } from '../index/record-places.ts';
import { ON_DISK } from '../index/run-index.ts';
import { isContentOf, isInLog } from './verify-record.ts';
import { RunBuffers } from './run-buffers.ts';

/** Index entries that are read concurrently. */
const PLACES_AHEAD = 16;
/** Neighbouring records are read together up to this many bytes. */
const SPAN_BYTES_MAX = 1024 * 1024 + 64 * 1024;

/** Shared by all volumes. */
const RUNS = new RunBuffers(SPAN_BYTES_MAX);
/** Smaller runs get memory of their own. */
const POOLED_BYTES_MIN = 34 * 1024;

export interface ContentSource {
  /** The volume's. */
  readonly name: string;
  readonly log: SegmentLog;
  /** Where a content lies; `ON_DISK` when that takes a read. */
  readonly placeNow: (id: Uint8Array) => Place | typeof ON_DISK | undefined;
  readonly placeOf: (id: Uint8Array) => Promise<Place | undefined>;
  /** One content, wherever it is; throws when it is nowhere. */
  readonly contentOf: (id: Uint8Array) => Promise<Uint8Array>;
}

export async function* contentRuns(
  source: ContentSource,
  ids: readonly Uint8Array[],
  signal: AbortSignal,
): AsyncGenerator<readonly Uint8Array[], void, void> {
  const { log } = source;
  let next = 0;
  while (next < ids.length) {
    signal.throwIfAborted();
    const places = await runFrom(source, ids, next);
    const bytes = isInLog(log, places[0]!) ? bytesOf(places) : 0;
    const isPooled = bytes >= POOLED_BYTES_MIN && bytes <= SPAN_BYTES_MAX;
    const buffer = isPooled ? RUNS.take(bytes) : Buffer.allocUnsafeSlow(bytes);
    let isRead = false;
    try {
      const run = await readRun(log, places, buffer);
      isRead = true;
      const contents: Uint8Array[] = [];
      for (const place of places) {
        const id = ids[next]!;
        contents.push(contentIn(run, place, id) ?? (await source.contentOf(id)));
        next += 1;
      }
      yield contents;
    } finally {
      // A consumer that requested the next batch, or stopped, no longer uses this one; a read that failed may.
      if (isPooled && isRead) RUNS.give(buffer);
      else if (isPooled) RUNS.lose(buffer);
    }
  }
}

/** The places of the ids from `from` on that lie one after another on disk. */
async function runFrom(source: ContentSource, ids: readonly Uint8Array[], from: number): Promise<Place[]> {
  const { name, log } = source;
  const run: Place[] = [];
  let bytes = 0;
  let read: readonly (Place | undefined)[] = [];
  let read_from = from;
  for (let at = from; at < ids.length; at++) {
    let place = at < read_from + read.length ? read[at - read_from] : source.placeNow(ids[at]!);
    if (place === ON_DISK) {
      // Entries of neighbours lie anywhere in the index: those that will be needed next are read concurrently.
      read = await Promise.all(ids.slice(at, at + PLACES_AHEAD).map((id) => source.placeOf(id)));
      read_from = at;
      place = read[0];
    }
    if (place === undefined) {
      if (run.length > 0) break;
      throw new RonError('not_found', `${name} does not hold ${hexOf(ids[at]!)}`);
    }
    const last = run.at(-1);
    const isNext =
      last === undefined || (place.segment === last.segment && place.offset === last.offset + onDisk(last));
    const fits = bytes + onDisk(place) <= SPAN_BYTES_MAX && isInLog(log, place);
    if (!isNext || (run.length > 0 && !fits)) break;
    run.push(place);
    bytes += onDisk(place);
  }
  return run;
}

/** Neighbouring records as they were read. */
interface Run {
  readonly bytes: Buffer;
  /** Where in the segment it begins. */
  readonly offset: number;
  readonly salt: number;
}

const bytesOf = (run: readonly Place[]): number => run.reduce((sum, place) => sum + onDisk(place), 0);

/** A run whose segment compaction has removed meanwhile reads as nothing: its contents are looked up again. */
async function readRun(log: SegmentLog, run: readonly Place[], buffer: Buffer): Promise<Run> {
  const { segment, offset } = run[0]!;
  if (!isInLog(log, run[0]!)) return { bytes: buffer.subarray(0, 0), offset, salt: 0 };
  const { files } = log;
  const salt = files.saltOf(segment);
  const bytes = bytesOf(run);
  const count = files.readNow(segment, buffer, bytes, offset) ?? (await files.read(segment, buffer, bytes, offset));
  return { bytes: buffer.subarray(0, count), offset, salt };
}

/** The content at `place` in a run; undefined when it is not what `id` says. */
function contentIn(run: Run, place: Place, id: Uint8Array): Uint8Array | undefined {
  const at = place.offset - run.offset;
  const head = decodeHeader(run.bytes, at, run.salt);
  if (head === undefined || head.payload_bytes !== place.payload_bytes) return undefined;
  const payload = run.bytes.subarray(at + HEADER_BYTES, at + HEADER_BYTES + place.payload_bytes);
  if (payload.length < place.payload_bytes) return undefined;
  return isContentOf(payload, id) ? payload : undefined;
}
