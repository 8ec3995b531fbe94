/**
 * Finds what the objects of a volume are made of.
 *
 * Promise: every chunk and page that an object names which was stored when the walk began is in the set. Objects that
 * came later are the business of leases: their writers held them since before.
 * Bound: one page of one manifest at a time, and the set. Cancellation: by the signal, between two reads.
 */
import { isRonError } from '@ron/kernel';
import { formatAddress, type Address } from '@ron/proto';
import type { IdFilter } from './id-filter.ts';
import { entriesOfPage, ManifestError, parseManifest, parsePage, type Manifest } from '../objects/manifest.ts';
import { RecordType } from '../volume/record-types.ts';
import type { Volume } from '../volume/volume.ts';

const LIST_COUNT = 256;
/** What a line of the listing counts as, in bytes, when the work is paced. */
const LINE_COST_BYTES = 128;

export interface MarkInit {
  volume: Volume;
  /** Pages that are leased: what they name is needed like what objects name. */
  pages: readonly Uint8Array[];
  into: IdFilter;
  pace(bytes: number): Promise<void>;
  signal: AbortSignal;
}

export interface Marked {
  readonly objects: number;
  /** Some of the objects whose manifest could not be read: their contents are not known. */
  readonly unreadable: readonly Address[];
  /** Objects whose manifest or a chunk is missing. */
  readonly broken: number;
  /** Everything that is needed is in the set: no manifest or leased page was unreadable. */
  readonly isComplete: boolean;
}

const UNREADABLE_MAX = 16;

export async function markNeeded(init: MarkInit): Promise<Marked> {
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

/** What an object is made of: known and there, known and in parts gone, or not known. */
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

/** The bytes of a record; undefined when it is not there, damaged, or not to be had now. Any other failure ends the walk. */
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
