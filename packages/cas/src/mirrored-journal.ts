/**
 * The journal of an upload on several volumes, so that none of them takes what was acknowledged with it.
 *
 * Promise: what `append` or `replace` wrote is durable in at least `copies_min` places when it resolves. A copy whose write
 * failed is given up, and the next write puts a whole one in another place. Of several copies the one counts that has come
 * furthest. Bound: `copies` files. Cancellation: none; calls end by themselves.
 */
import { RonError } from '@ron/kernel';
import type { FileSystem } from '@ron/log';
import { FileJournal, type Frame, type UploadJournal } from './upload-journal.ts';

/** A directory for journals. */
export interface JournalPlace {
  readonly dir: string;
  readonly fs: FileSystem;
}

export interface JournalPlaces {
  /** Where there may be journals. */
  all(): readonly JournalPlace[];
  /** Those that can be written now, in any order. */
  now(): readonly JournalPlace[];
  /** How many copies there are to be. */
  readonly copies: number;
  /** How many are enough. */
  readonly copies_min: number;
}

/** A volume that was away may be back by then. */
const RETRY_AFTER_MS = 1000;

export class MirroredJournal implements UploadJournal {
  readonly #places: JournalPlaces;
  readonly #name: string;
  /** By directory. */
  #copies: ReadonlyMap<string, FileJournal>;

  /** `copies`: what a former process left, by directory; none for a new one, which is written by its first `replace`. */
  constructor(places: JournalPlaces, name: string, copies: ReadonlyMap<string, FileJournal> = new Map()) {
    this.#places = places;
    this.#name = name;
    this.#copies = copies;
  }

  copyIn(dir: string): FileJournal | undefined {
    return this.#copies.get(dir);
  }

  isWasteful(state_bytes: number): boolean {
    const here = this.#here();
    const wanted = Math.min(this.#places.copies, this.#places.now().length);
    return here.size < wanted || [...here.values()].some((copy) => copy.isWasteful(state_bytes));
  }

  append(frame: Frame): Promise<void> {
    return this.#write(this.#here(), (copy) => copy.append(frame));
  }

  replace(frames: readonly Frame[]): Promise<void> {
    const chosen = new Map(this.#here());
    for (const { dir, fs } of this.#ordered()) {
      if (chosen.size < this.#places.copies && !chosen.has(dir))
        chosen.set(dir, FileJournal.fresh(fs, dir, this.#name));
    }
    return this.#write(chosen, (copy) => copy.replace(frames));
  }

  /** Also copies that were given up, where they can be reached. */
  async remove(): Promise<void> {
    const here = this.#here();
    for (const { dir, fs } of this.#places.all()) {
      if (!here.has(dir))
        await FileJournal.fresh(fs, dir, this.#name)
          .remove()
          .catch(() => undefined);
    }
    for (const copy of here.values()) await copy.remove();
  }

  async #write(copies: ReadonlyMap<string, FileJournal>, write: (copy: FileJournal) => Promise<void>): Promise<void> {
    const good = new Map<string, FileJournal>();
    const failures: unknown[] = [];
    await Promise.all(
      [...copies].map(([dir, copy]) =>
        write(copy).then(
          () => void good.set(dir, copy),
          (error: unknown) => void failures.push(error),
        ),
      ),
    );
    this.#copies = good;
    const needed = Math.min(this.#places.copies_min, this.#places.copies);
    if (good.size >= needed) return;
    const what = `${good.size} of ${needed} copies of what is known of the upload could be written`;
    throw failures[0] ?? new RonError('not_ready', what, { retry_after_ms: RETRY_AFTER_MS });
  }

  /** The copies whose places are still there. */
  #here(): ReadonlyMap<string, FileJournal> {
    const dirs = new Set(this.#places.now().map((place) => place.dir));
    return new Map([...this.#copies].filter(([dir]) => dirs.has(dir)));
  }

  /** Each upload begins with another one, so that all share the work. */
  #ordered(): readonly JournalPlace[] {
    const places = this.#places.now();
    const first = places.length === 0 ? 0 : Number.parseInt(this.#name.slice(0, 4), 16) % places.length;
    return [...places.slice(first), ...places.slice(0, first)];
  }
}
