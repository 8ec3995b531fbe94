/**
 * Finds the journals of uploads on the volumes and selects the authoritative copy of each.
 *
 * Contract: the most advanced copy is authoritative. A directory that cannot be read is reported, not skipped silently: it
 * may have the newest copy of a journal. Bound: one journal in memory at a time, besides the frames found.
 */
import { join } from 'node:path';
import { sched } from '@ron/kernel';
import type { JournalPlace, JournalPlaces } from './mirrored-journal.ts';
import { entriesOfPage } from '../objects/manifest.ts';
import { FileJournal, FrameType, type LoadedJournal } from './upload-journal.ts';
import { Upload } from './upload.ts';
import type { Volume } from '../volume/volume.ts';

const NAME = /^[0-9a-f]{32}$/;

/** A copy of a journal. */
export interface FoundJournal {
  readonly name: string;
  readonly place: JournalPlace;
  readonly loaded: LoadedJournal;
}

export interface FoundJournals {
  /** By the id of the upload. */
  readonly copies: ReadonlyMap<string, readonly FoundJournal[]>;
  /** Directories that could not be read, with the reason. */
  readonly unread: readonly string[];
}

/** Throws if the only directory cannot be read. */
export async function findJournals(places: JournalPlaces): Promise<FoundJournals> {
  const copies = new Map<string, FoundJournal[]>();
  const unread: string[] = [];
  const all = places.all();
  for (const place of all) {
    try {
      for (const copy of await copiesIn(place)) copies.set(copy.name, [...(copies.get(copy.name) ?? []), copy]);
    } catch (error) {
      if (all.length === 1) throw error;
      unread.push(`${place.dir}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  return { copies, unread };
}

export const progressOf = ({ loaded }: FoundJournal): number =>
  loaded.frames[0]?.type === FrameType.created ? Upload.progressOf(loaded.frames) : -1;

/** The ids of the uploads whose journals lie in a directory. */
export async function namesIn({ fs, dir }: JournalPlace): Promise<string[]> {
  return (await fs.list(dir)).filter((name) => NAME.test(name));
}

async function copiesIn(place: JournalPlace): Promise<FoundJournal[]> {
  const { fs, dir } = place;
  await fs.makeDir(dir);
  const found: FoundJournal[] = [];
  for (const name of await fs.list(dir)) {
    if (NAME.test(name)) found.push({ name, place, loaded: await FileJournal.load(fs, dir, name) });
  }
  return found;
}

/** Removes unfinished journals of an earlier process. Only at startup: later they may be in progress. */
export async function removeUnfinished(places: JournalPlaces): Promise<void> {
  for (const { fs, dir } of places.all()) {
    const names = await fs.list(dir).catch(() => []);
    for (const name of names.filter((each) => each.endsWith('.new'))) {
      await fs.remove(join(dir, name)).catch(() => undefined);
    }
  }
}

/** Whether every chunk of an upload is stored, including those of its full pages. */
export async function isWholeInPages(upload: Upload, volume: Volume, signal: AbortSignal): Promise<boolean> {
  if (!upload.isWhole(volume)) return false;
  for (const { id } of upload.writerState.pages) {
    await sched.pause('uploads.check');
    const page = await volume.get('content', id, signal);
    if (page === undefined) return false;
    if (!entriesOfPage(page.payload).every((entry) => volume.has('content', entry.id))) return false;
  }
  return true;
}
