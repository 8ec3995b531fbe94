/**
 * The mark phase of compaction: marks the contents that are reachable from the objects of a volume.
 *
 * Contract: the set has every chunk and page of each object that was stored when the walk began. Contents of later objects
 * are leased by their writers since before.
 * Bound: one page of one manifest at a time, and the set. Cancellation: by the signal, between two reads.
 */
import { isRonError } from '@ron/kernel';
import { formatAddress, type Address } from '@ron/proto';
import type { IdFilter } from './id-filter.ts';
import { entriesOfPage, ManifestError, parseManifest, parsePage, type Manifest } from '../objects/manifest.ts';
import { RecordType } from '../volume/record-types.ts';
import type { Volume } from '../volume/volume.ts';

const LIST_COUNT = 256;
/** The cost of an inventory entry in bytes, for pacing. */
const LINE_COST_BYTES = 128;

export interface MarkInit {
  volume: Volume;
  /** Leased pages: their chunks are marked like those of objects. */
  pages: readonly Uint8Array[];
  into: IdFilter;
  pace(bytes: number): Promise<void>;
  signal: AbortSignal;
}

export interface Marked {
  readonly objects: number;
  /** Objects with an unreadable manifest, the first few: their contents are unknown. */
  readonly unreadable: readonly Address[];
  /** Objects whose manifest or a chunk is missing. */
  readonly broken: number;
  /** The set is complete: every manifest and leased page could be read. */
  readonly isComplete: boolean;
}

const UNREADABLE_MAX = 16;

export async function markReachable(init: MarkInit): Promise<Marked> {
  const unreadable: Address[] = [];
  let objects = 0;
  let broken = 0;
  let after: Uint8Array | undefined;
  for (;;) {
    const listed = await init.volume.inventory('object', after, LIST_COUNT);
    await init.pace(listed.length * LINE_COST_BYTES);
    for (const { id, type } of listed) {
      objects += 1;
      const found = type === RecordType.manifest ? await markObject(init, id) : 'whole';
      if (found !== 'whole' && init.volume.has('object', id)) broken += 1;
      const isKnown = found !== 'unknown' || !init.volume.has('object', id);
      if (!isKnown && unreadable.length < UNREADABLE_MAX) unreadable.push(formatAddress(id));
    }
    after = listed.at(-1)?.id;
    if (after === undefined) break;
  }
  let isComplete = unreadable.length === 0;
  for (const id of init.pages) isComplete = (await markLeasedPage(init, id)) && isComplete;
  return { objects, unreadable, broken, isComplete };
}

/** `broken`: the chunks are known and some are missing. `unknown`: the manifest cannot be read. */
type Found = 'whole' | 'broken' | 'unknown';

async function markObject(init: MarkInit, id: Uint8Array): Promise<Found> {
  const record = await bytesOf(init, 'object', id);
  if (record === undefined) return 'unknown';
  try {
    const manifest = parseManifest(record, id);
    let found: Found = 'whole';
    for (const index of manifest.pages.keys()) {
      const page = await markPage(init, manifest, index, id);
      if (page === 'unknown') return page;
      if (page === 'broken') found = page;
    }
    return found;
  } catch (error) {
    if (error instanceof ManifestError) return 'unknown';
    throw error;
  }
}

async function markPage(init: MarkInit, manifest: Manifest, index: number, id: Uint8Array): Promise<Found> {
  const page = manifest.pages[index]!;
  init.into.add(page.id);
  const bytes = await bytesOf(init, 'content', page.id);
  if (bytes === undefined) return 'unknown';
  let found: Found = 'whole';
  for (const entry of parsePage(bytes, manifest, index, id)) {
    init.into.add(entry.id);
    if (!init.volume.has('content', entry.id)) found = 'broken';
  }
  return found;
}

/** A page is stored before it is leased. */
async function markLeasedPage(init: MarkInit, id: Uint8Array): Promise<boolean> {
  init.into.add(id);
  const bytes = await bytesOf(init, 'content', id);
  for (const entry of entriesOfPage(bytes ?? new Uint8Array(0))) init.into.add(entry.id);
  return bytes !== undefined;
}

/** The payload of a record; undefined when it is missing, damaged or not readable now. Any other error ends the walk. */
async function bytesOf(init: MarkInit, kind: 'object' | 'content', id: Uint8Array): Promise<Uint8Array | undefined> {
  init.signal.throwIfAborted();
  try {
    const record = await init.volume.get(kind, id, init.signal);
    if (record !== undefined) await init.pace(record.payload.length);
    return record?.payload;
  } catch (error) {
    if (isRonError(error, 'integrity') || isRonError(error, 'not_ready')) return undefined;
    throw error;
  }
}
