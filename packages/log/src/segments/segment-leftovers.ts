/**
 * Resolves segment numbers that two files have: a create that was late left an empty one, or files were copied together.
 *
 * Contract: afterwards each number has one file, and every valid record is still in the log. A file without a valid record
 * is removed if another file has its number. If several files of one number hold records, all of them get new numbers
 * above every other: no caller can know which of them its positions refer to, so all of them are replayed. The salt of the
 * checksums stays with the file.
 *
 *     00000007-aa.seg  00000007-bb.seg        the larger one is marked first
 *     00000007-aa.dup  00000007-bb.seg        the others get their numbers, then the marked one gets its own
 *
 * After a crash in between, the next start continues from the mark.
 * Bound: one file is read at a time. Cancellation: by the signal, between two reads.
 */
import { join } from 'node:path';
import { RonError } from '@ron/kernel';
import { isReadOnly } from '../disk/disk-error.ts';
import type { FileSystem } from '../disk/file-system.ts';
import { scan } from './scan.ts';

const NAME = /^(?<segment>\d{8}|[1-9]\d{8,9})-(?<salt>[0-9a-f]{8})\.(?<kind>seg|dup)$/;
/** Indexes hold the number of a segment in 32 bits. */
const SEGMENT_MAX = 2 ** 32 - 1;

export interface SegmentName {
  readonly segment: number;
  readonly salt: number;
}

interface Found extends SegmentName {
  readonly isMarked: boolean;
}

const hex = (salt: number): string => salt.toString(16).padStart(8, '0');

/** Throws if the number is too large: the file would not be read again. */
export function fileNameOf(segment: number, salt: number, kind: 'seg' | 'dup' = 'seg'): string {
  if (segment > SEGMENT_MAX) throw new RonError('not_ready', `no segment can have a number above ${SEGMENT_MAX}`);
  return `${String(segment).padStart(8, '0')}-${hex(salt)}.${kind}`;
}

/** The segment files in a directory, in order of their numbers. Several may have one number. */
export async function listSegments(fs: FileSystem, dir: string): Promise<Found[]> {
  return (await fs.list(dir))
    .map((name) => NAME.exec(name)?.groups)
    .filter((groups) => groups !== undefined)
    .map(({ segment, salt, kind }) => ({
      segment: Number(segment),
      salt: Number.parseInt(salt!, 16),
      isMarked: kind === 'dup',
    }))
    .filter(({ segment }) => segment <= SEGMENT_MAX)
    .toSorted((a, b) => a.segment - b.segment || a.salt - b.salt);
}

export async function resolveLeftovers(fs: FileSystem, dir: string, signal: AbortSignal): Promise<SegmentName[]> {
  const found = await listSegments(fs, dir);
  const shared = [...Map.groupBy(found, ({ segment }) => segment).values()].filter(
    (files) => files.length > 1 || files.some(({ isMarked }) => isMarked),
  );
  if (shared.length === 0) return found;
  const resolver = new Resolver(fs, dir, found.at(-1)!.segment + 1, signal);
  const dropped = new Set<SegmentName>();
  for (const files of shared) for (const each of await resolver.run(files)) dropped.add(each);
  return (await listSegments(fs, dir)).filter(
    ({ segment, salt }) => ![...dropped].some((each) => each.segment === segment && each.salt === salt),
  );
}

class Resolver {
  readonly #fs: FileSystem;
  readonly #dir: string;
  readonly #signal: AbortSignal;
  #next: number;

  constructor(fs: FileSystem, dir: string, next: number, signal: AbortSignal) {
    this.#fs = fs;
    this.#dir = dir;
    this.#next = next;
    this.#signal = signal;
  }

  /** The empty files. On a read-only disk they still exist. */
  async run(files: readonly Found[]): Promise<readonly Found[]> {
    if (files.some(({ isMarked }) => isMarked)) {
      await this.#renumber(files);
      return [];
    }
    const sized: { file: Found; bytes: number; hasRecord: boolean }[] = [];
    for (const file of files) sized.push({ file, ...(await this.#look(file)) });
    sized.sort((a, b) => Number(b.hasRecord) - Number(a.hasRecord) || b.bytes - a.bytes);
    const empty = sized.slice(1).filter(({ hasRecord }) => !hasRecord);
    for (const { file } of empty) await this.#remove(file);
    const holding = sized.filter((each) => !empty.includes(each)).map(({ file }) => file);
    if (holding.length > 1) {
      const [first, ...others] = holding as [Found, ...Found[]];
      await this.#rename(first, fileNameOf(first.segment, first.salt, 'dup'));
      await this.#fs.syncDir(this.#dir);
      await this.#renumber([{ ...first, isMarked: true }, ...others]);
    }
    return empty.map(({ file }) => file);
  }

  /** The marked file comes last: until then its mark says that the others must not keep the number. */
  async #renumber(files: readonly Found[]): Promise<void> {
    for (const isMarked of [false, true]) {
      for (const file of files.filter((each) => each.isMarked === isMarked)) {
        await this.#rename(file, fileNameOf(this.#next++, file.salt));
      }
      await this.#fs.syncDir(this.#dir);
    }
  }

  async #rename(file: Found, to: string): Promise<void> {
    await this.#fs.rename(this.#pathOf(file), join(this.#dir, to));
  }

  async #remove(file: Found): Promise<void> {
    await this.#fs.remove(this.#pathOf(file)).catch((error: unknown) => {
      if (!isReadOnly(error)) throw error;
    });
  }

  async #look(name: Found): Promise<{ bytes: number; hasRecord: boolean }> {
    const file = await this.#fs.open(this.#pathOf(name), 'read');
    try {
      const bytes = await file.size();
      let hasRecord = false;
      const onRecord = (): void => void (hasRecord = true);
      const scanned = { file, from: 0, salt: name.salt, onRecord, onGap: () => undefined, signal: this.#signal };
      await scan(scanned);
      return { bytes, hasRecord };
    } finally {
      await file.close();
    }
  }

  #pathOf({ segment, salt, isMarked }: Found): string {
    return join(this.#dir, fileNameOf(segment, salt, isMarked ? 'dup' : 'seg'));
  }
}
