/**
 * Reads the journals of uploads in one directory and checks every frame.
 *
 * Contract: a copy with a damaged frame, or shorter than its acknowledged length, is rewritten from the state in memory,
 * which came from a good copy. While a request appends to the upload, its next write does that. A damaged obsolete copy is
 * removed. Bound: one journal in memory at a time. Cancellation: by the signal, between two journals.
 */
import type { JournalPlace } from './mirrored-journal.ts';
import { FileJournal, type LoadedJournal } from './upload-journal.ts';
import { namesIn } from './upload-restore.ts';
import type { Upload } from './upload.ts';

export interface JournalScrub {
  readonly bytes: number;
  /** Valid frames. */
  readonly records: number;
  /** Journals that were damaged. */
  readonly bad: number;
}

export const NO_JOURNALS: JournalScrub = { bytes: 0, records: 0, bad: 0 };

export interface JournalScrubInit {
  place: JournalPlace;
  /** Undefined when the state of the upload is uncertain. */
  readonly uploadOf: (id: string) => Upload | undefined;
  readonly isTaken: (id: string) => boolean;
  readonly rewrite: (upload: Upload) => Promise<void>;
  readonly onDamage: (id: string) => void;
  signal: AbortSignal;
}

export async function scrubJournals(init: JournalScrubInit): Promise<JournalScrub> {
  let total = NO_JOURNALS;
  for (const name of await namesIn(init.place)) {
    init.signal.throwIfAborted();
    const known_bytes = copyOf(init, name)?.durable_bytes;
    const loaded = await load(init.place, name);
    if (loaded === undefined) continue;
    const { bytes, frames } = loaded;
    const isBad = isDamaged(init, name, loaded, known_bytes);
    total = { bytes: total.bytes + bytes, records: total.records + frames.length, bad: total.bad + Number(isBad) };
    if (isBad) await mend(init, name);
  }
  return total;
}

const copyOf = ({ uploadOf, place }: JournalScrubInit, name: string): FileJournal | undefined =>
  uploadOf(name)?.journalIn(place.dir);

/** Undefined when it was removed meanwhile. */
async function load({ fs, dir }: JournalPlace, name: string): Promise<LoadedJournal | undefined> {
  try {
    return await FileJournal.load(fs, dir, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/** Bytes after the durable ones may be a write in progress, or a torn one. */
function isDamaged(init: JournalScrubInit, name: string, loaded: LoadedJournal, known_bytes?: number): boolean {
  if (known_bytes === undefined) return loaded.isDamaged && !init.isTaken(name);
  // The journal was replaced while it was read.
  if (copyOf(init, name)?.durable_bytes !== known_bytes) return false;
  return loaded.end_bytes < known_bytes;
}

async function mend(init: JournalScrubInit, name: string): Promise<void> {
  const { place, isTaken, rewrite, onDamage } = init;
  onDamage(name);
  const upload = init.uploadOf(name);
  if (upload === undefined) return;
  const copy = upload.journalIn(place.dir);
  if (copy === undefined) return await FileJournal.fresh(place.fs, place.dir, name).remove();
  copy.markBroken();
  if (!isTaken(name)) await rewrite(upload);
}
