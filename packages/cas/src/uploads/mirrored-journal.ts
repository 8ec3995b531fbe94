/**
 * The journal of an upload on several volumes: the loss of one volume loses no acknowledged state.
 *
 * Contract: a frame that `append` or `replace` wrote is durable in at least `copies_min` places when the call resolves. A
 * copy whose write failed, or lags `LAG_MS` behind a quorum, is abandoned; if too few remain, the same call writes a whole
 * journal to another place. No write begins in a place while an earlier one is in progress there. Of several copies the most
 * advanced one is authoritative. Bound: `copies` files, and the abandoned ones.
 */
import { RonError, sched } from '@ron/kernel';
import type { FileSystem } from '@ron/log';
import { FileJournal, type Frame, type UploadJournal } from './upload-journal.ts';
import { quorumWrite } from './quorum-write.ts';

/** A directory for journals. */
export interface JournalPlace {
  readonly dir: string;
  readonly fs: FileSystem;
}

export interface JournalPlaces {
  /** All directories that may have journals. */
  all(): readonly JournalPlace[];
  /** The directories that accept writes now, in any order. */
  now(): readonly JournalPlace[];
  /** The number of copies of each journal. */
  readonly copies: number;
  /** The number of durable copies that an acknowledgement needs. */
  readonly copies_min: number;
}

/** An absent volume may be back by then. */
const RETRY_AFTER_MS = 1000;
/** How long a write waits for a slow place when others could have the journal. */
const LAG_MS = 1000;
/** How long a late place counts as slow: it is chosen last, and not waited for when others suffice. */
const SLOW_MS = 5000;
/** Until when directories count as slow, for all journals of the same places. One entry for each directory at most. */
const slowDirs = new WeakMap<JournalPlaces, Map<string, number>>();

type Copy = readonly [dir: string, copy: FileJournal];

interface WriteInit {
  first: readonly Copy[];
  spare: readonly Copy[];
  write: (copy: FileJournal) => Promise<void>;
  /** As for `quorumWrite`. */
  enough: number;
}

export class MirroredJournal implements UploadJournal {
  readonly #places: JournalPlaces;
  readonly #name: string;
  /** By directory. */
  #copies: ReadonlyMap<string, FileJournal>;
  /** Abandoned writes that have not ended, by directory. */
  readonly #late = new Map<string, Promise<void>>();

  /** `copies`: those of an earlier process, by directory; none for a new journal, which its first `replace` writes. */
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
    const ready = this.#others(here).filter(({ dir }) => !this.#isSlow(dir)).length;
    const wanted = Math.min(this.#places.copies, here.size + ready);
    return here.size < wanted || [...here.values()].some((copy) => copy.isWasteful(state_bytes));
  }

  async append(frame: Frame, whole: () => readonly Frame[]): Promise<void> {
    const here = this.#here();
    const failures = await this.#write({
      first: [...here],
      spare: [],
      write: (copy) => copy.append(frame),
      enough: Math.max(0, this.#needed - this.#others(here).length),
    });
    if (this.#copies.size >= this.#needed) return;
    if (this.#others(here).length === 0) throw this.#tooFew(failures);
    await this.replace(whole());
  }

  async replace(frames: readonly Frame[]): Promise<void> {
    const here = this.#here();
    const more = this.#others(here).map((place): Copy => [
      place.dir,
      FileJournal.fresh(place.fs, place.dir, this.#name),
    ]);
    const wanted = Math.max(0, this.#places.copies - here.size);
    const failures = await this.#write({
      first: [...here, ...more.slice(0, wanted)],
      spare: more.slice(wanted),
      write: (copy) => copy.replace(frames),
      enough: this.#needed,
    });
    if (this.#copies.size < this.#needed) throw this.#tooFew(failures);
  }

  /** Removes all copies, including abandoned ones that can be reached. */
  async remove(): Promise<void> {
    const here = this.#here();
    for (const { dir, fs } of this.#places.all()) {
      // A write in progress could create the file again.
      await this.#late.get(dir);
      if (!here.has(dir))
        await FileJournal.fresh(fs, dir, this.#name)
          .remove()
          .catch(() => undefined);
    }
    for (const copy of here.values()) await copy.remove();
  }

  get #needed(): number {
    return Math.min(this.#places.copies_min, this.#places.copies);
  }

  /** Returns the reasons why places could not be written. Afterwards `#copies` has those that were. */
  async #write(init: WriteInit): Promise<readonly unknown[]> {
    const { good, failures, late } = await quorumWrite<Copy>({
      ...init,
      write: ([, copy]) => init.write(copy),
      isSlow: ([dir]) => this.#isSlow(dir),
      needed: this.#needed,
      lag_ms: LAG_MS,
    });
    this.#copies = new Map(good);
    for (const [[dir], write] of late) {
      this.#markSlow(dir);
      this.#late.set(
        dir,
        write.finally(() => this.#late.delete(dir)),
      );
    }
    return failures;
  }

  #tooFew(failures: readonly unknown[]): unknown {
    const what = `${this.#copies.size} of ${this.#needed} copies of the journal of the upload were written`;
    return failures[0] ?? new RonError('not_ready', what, { retry_after_ms: RETRY_AFTER_MS });
  }

  /** The copies whose places still exist. */
  #here(): ReadonlyMap<string, FileJournal> {
    const dirs = new Set(this.#places.now().map((place) => place.dir));
    return new Map([...this.#copies].filter(([dir]) => dirs.has(dir)));
  }

  /** Places other than those of `here`, slow ones last. The order depends on the upload, which spreads the load. */
  #others(here: ReadonlyMap<string, FileJournal>): readonly JournalPlace[] {
    const places = this.#places.now();
    const first = places.length === 0 ? 0 : Number.parseInt(this.#name.slice(0, 4), 16) % places.length;
    const free = [...places.slice(first), ...places.slice(0, first)].filter(
      ({ dir }) => !here.has(dir) && !this.#late.has(dir),
    );
    return [...free.filter(({ dir }) => !this.#isSlow(dir)), ...free.filter(({ dir }) => this.#isSlow(dir))];
  }

  #isSlow(dir: string): boolean {
    return sched.now_ms() < (slowDirs.get(this.#places)?.get(dir) ?? -Infinity);
  }

  #markSlow(dir: string): void {
    const known = slowDirs.get(this.#places) ?? new Map<string, number>();
    slowDirs.set(this.#places, known.set(dir, sched.now_ms() + SLOW_MS));
  }
}
