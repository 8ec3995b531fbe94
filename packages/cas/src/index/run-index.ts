/**
 * The runs of an index: look-ups, listings, and the merges that keep them few.
 *
 *     DIR/00000012.run     see run-file.ts        DIR/00000013.tmp    a run that was not finished
 *
 * Contract: after a crash the index is exactly as of one `write`, with the `applied` of that write. The footer of the run
 * with the highest number lists all runs that count, so a run that was never finished, or that a merge has replaced, is
 * not taken for a part of the index, and one that is missing is noticed. Damage throws `RunDamaged`, at open or at the
 * read that meets it; it never gives a wrong place.
 * Bound: 10 bytes of memory an entry; about `FAN_OUT` runs for each power of `FAN_OUT` of the size, `RUNS_MAX` before
 * writes wait for a merge. One merge at a time. Cancellation: `close` stops a merge; reads end by the file system's
 * deadline.
 */
import { join } from 'node:path';
import { sched } from '@ron/kernel';
import type { File, FileSystem } from '@ron/log';
import { placeAt, TABLE_NUMBER, type Applied, type Place, type Table } from './entry.ts';
import { copyIds, mergeRuns, mergeStretches, stretchesOf, type CopiedIds } from './merge.ts';
import { planMerge, RUNS_MAX } from './merge-plan.ts';
import { Run, RunDamaged, RunWriter } from './run-file.ts';
import { findKey, fingerprintOf, highOf } from './run-keys.ts';

const NAME = /^(?<number>\d{8})\.run$/;
const TEMPORARY = /^(?<number>\d{8})\.tmp$/;
const SLICE_ENTRIES = 512;

/** The answer would need a read from disk. */
export const ON_DISK = Symbol('on disk');

/** Entries in order of their keys, for a new run. */
export type Sorted = readonly (readonly [key: string, place: Place | undefined])[];

export interface RunIndexInit {
  fs: FileSystem;
  dir: string;
}

export class RunIndex {
  readonly #init: RunIndexInit;
  /** From newest to oldest. Replaced as a whole: a reader keeps the array that it began with. */
  #runs: readonly Run[];
  #secret: number;
  #number_last: number;
  #applied: Applied | undefined;
  /** Adding a run and replacing runs happen one at a time. */
  #committing: Promise<unknown> = Promise.resolve();
  #merging: Promise<void> | undefined;
  #isClosed = false;
  /** Why the last merge failed. */
  mergeFailure: unknown;
  /** Called when a merge meets damage. */
  onDamage: ((error: RunDamaged) => void) | undefined;

  private constructor(init: RunIndexInit, runs: readonly Run[], number_last: number) {
    this.#init = init;
    this.#runs = runs.toSorted((a, b) => b.footer.order - a.footer.order);
    this.#number_last = number_last;
    this.#applied = this.#runs[0]?.footer.applied;
    this.#secret = this.#runs[0]?.footer.secret ?? new DataView(sched.randomBytes(4).buffer).getUint32(0);
  }

  /** Opens the index in a directory. Throws `RunDamaged` when it cannot be trusted. */
  static async open(init: RunIndexInit): Promise<RunIndex> {
    const { fs, dir } = init;
    await fs.makeDir(dir);
    const names = await fs.list(dir);
    const numbers = names.flatMap((name) => NAME.exec(name)?.groups?.['number'] ?? []).map(Number);
    const newest = Math.max(0, ...numbers);
    // The number of an unfinished run is not used again either.
    const number_last = Math.max(
      newest,
      ...names.flatMap((name) => TEMPORARY.exec(name)?.groups?.['number'] ?? []).map(Number),
    );
    const runs: Run[] = [];
    try {
      if (newest > 0) await openLive(init, newest, runs);
    } catch (error) {
      for (const run of runs) await run.retire().catch(() => undefined);
      throw error;
    }
    const live = new Set(runs.map((run) => nameOf(run.footer.number)));
    for (const name of names.filter((each) => /\.(?:run|tmp)$/.test(each) && !live.has(each))) {
      // Left by a crash. A failure to remove it costs room alone.
      await fs.remove(join(dir, name)).catch(() => undefined);
    }
    return new RunIndex(init, runs, number_last);
  }

  /** Removes everything that lies in the directory. */
  static async discard({ fs, dir }: RunIndexInit): Promise<void> {
    await fs.makeDir(dir);
    // The newest run first: without it the rest is not taken for an index.
    const names = (await fs.list(dir)).toSorted().toReversed();
    for (const name of names) await fs.remove(join(dir, name));
    await fs.syncDir(dir);
  }

  /** As of the last `write`. */
  get applied(): Applied | undefined {
    return this.#applied;
  }

  /** It has been written to the end at least once: one that is being rebuilt has not. */
  get isComplete(): boolean {
    return this.#applied !== undefined && this.#applied.position.segment > 0;
  }

  get runs(): readonly Run[] {
    return this.#runs;
  }

  /** At most this many entries; those that hide others count. */
  count(table: Table): number {
    const number = TABLE_NUMBER[table];
    return this.#runs.reduce((sum, { keys }) => sum + keys.start[number + 1]! - keys.start[number]!, 0);
  }

  /** Type and flags of the newest entry of an id, from memory alone; undefined when there is none. */
  tag(table: Table, id: Uint8Array): number | undefined {
    const number = TABLE_NUMBER[table];
    const high = highOf(id);
    const fingerprint = fingerprintOf(id, this.#secret);
    for (const run of this.#runs) {
      const at = findKey(run.keys, number, high, fingerprint);
      if (at >= 0) return run.isNone(at) ? undefined : run.keys.tag[at];
    }
    return undefined;
  }

  /** The entry of an id if that takes no waiting. */
  placeNow(table: Table, id: Uint8Array): Place | typeof ON_DISK | undefined {
    const number = TABLE_NUMBER[table];
    const high = highOf(id);
    const fingerprint = fingerprintOf(id, this.#secret);
    for (const run of this.#runs) {
      let at = findKey(run.keys, number, high, fingerprint);
      for (; at >= 0; at = findKey(run.keys, number, high, fingerprint, at + 1)) {
        const bytes = run.entryNow(at);
        if (bytes === undefined) return ON_DISK;
        if (bytes.compare(id, 0, id.length, 0, id.length) === 0) return placeAt(bytes, 0);
      }
    }
    return undefined;
  }

  async place(table: Table, id: Uint8Array): Promise<Place | undefined> {
    for await (const place of this.#versions(table, id)) return place;
    return undefined;
  }

  /** All entries of an id from newest to oldest, up to one that hides the rest. */
  async places(table: Table, id: Uint8Array): Promise<Place[]> {
    const places: Place[] = [];
    for await (const place of this.#versions(table, id)) {
      if (place === undefined) break;
      places.push(place);
    }
    return places;
  }

  async *#versions(table: Table, id: Uint8Array): AsyncGenerator<Place | undefined, void, void> {
    const number = TABLE_NUMBER[table];
    const high = highOf(id);
    const fingerprint = fingerprintOf(id, this.#secret);
    const candidates = this.#runs.flatMap((run) => {
      const found: { run: Run; at: number }[] = [];
      let at = findKey(run.keys, number, high, fingerprint);
      for (; at >= 0; at = findKey(run.keys, number, high, fingerprint, at + 1)) found.push({ run, at });
      return found;
    });
    const release = useAll(candidates.map(({ run }) => run));
    try {
      for (const { run, at } of candidates) {
        const bytes = await run.entries(at, at + 1);
        if (bytes.compare(id, 0, id.length, 0, id.length) === 0) yield placeAt(bytes, 0);
      }
    } finally {
      release();
    }
  }

  /**
   * About `count` entries of a table after an id, in order; fewer than one only at the end. Entries that hide others come
   * as undefined.
   */
  async page(table: Table, after: Uint8Array | undefined, count: number): Promise<[Buffer, Place | undefined][]> {
    const number = TABLE_NUMBER[table];
    const release = useAll(this.#runs);
    try {
      const merged = await mergeStretches(stretchesOf(this.#runs, number, after, count), number);
      // Ids that begin like `after` may come before it.
      return after === undefined ? merged : merged.filter(([id]) => id.compare(after) > 0);
    } finally {
      release();
    }
  }

  /** About `count` ids after `after`, copied to `into` from `at` on. */
  async ids(table: Table, after: Uint8Array | undefined, count: number, into: Buffer, at: number): Promise<CopiedIds> {
    const release = useAll(this.#runs);
    try {
      return await copyIds(stretchesOf(this.#runs, TABLE_NUMBER[table], after, count), after, into, at);
    } finally {
      release();
    }
  }

  /** Adds a run. `applied` is how far the log is reflected with it. */
  async write(sorted: Sorted, applied: Applied): Promise<void> {
    if (this.#runs.length >= RUNS_MAX) {
      await this.#mergeSoon();
      if (this.#runs.length >= RUNS_MAX)
        throw this.mergeFailure ?? new Error('the runs of the index could not be merged');
    }
    const draft = await this.#create(sorted.length);
    try {
      let slice = 0;
      for (const [key, place] of sorted) {
        draft.writer.add(key, place);
        if (draft.writer.isBlockFull) await draft.writer.block();
        if (++slice % SLICE_ENTRIES === 0) await sched.pause('index.write');
      }
      await this.#commit(draft, [], applied);
    } catch (error) {
      await this.#abandon(draft);
      throw error;
    }
    void this.#mergeSoon();
  }

  get dir(): string {
    return this.#init.dir;
  }

  /** Ends a merge that is under way; nothing is written from now on. */
  async stop(): Promise<void> {
    this.#isClosed = true;
    await this.#merging;
    await this.#committing.catch(() => undefined);
  }

  /** Removes the files. Those that are open can still be read. */
  discard(): Promise<void> {
    return RunIndex.discard(this.#init);
  }

  async close(): Promise<void> {
    await this.stop();
    for (const run of this.#runs) await run.retire();
  }

  /** Resolves when no merge is due or the last one failed. */
  merged(): Promise<void> {
    return this.#mergeSoon();
  }

  #mergeSoon(): Promise<void> {
    this.#merging ??= this.#mergeDue().finally(() => (this.#merging = undefined));
    return this.#merging;
  }

  async #mergeDue(): Promise<void> {
    try {
      for (let count = planMerge(this.#runs); count > 0 && !this.#isClosed; count = planMerge(this.#runs)) {
        await this.#merge(this.#runs.slice(0, count));
      }
      this.mergeFailure = undefined;
    } catch (error) {
      // The runs are as they were; the next write tries again.
      this.mergeFailure = error;
      if (error instanceof RunDamaged) this.onDamage?.(error);
    }
  }

  /** Replaces the newest runs by one. */
  async #merge(runs: readonly Run[]): Promise<void> {
    const hasOldest = runs.at(-1) === this.#runs.at(-1);
    const draft = await this.#create(runs.reduce((sum, run) => sum + run.count, 0));
    try {
      await mergeRuns({ runs, writer: draft.writer, hasOldest, isStopped: () => this.#isClosed });
      await this.#commit(draft, runs, runs[0]!.footer.applied);
    } catch (error) {
      await this.#abandon(draft);
      throw error;
    }
    for (const run of runs) {
      await run.retire().catch(() => undefined);
      await this.#init.fs.remove(join(this.#init.dir, nameOf(run.footer.number))).catch(() => undefined);
    }
  }

  async #create(count_max: number): Promise<Draft> {
    const { fs, dir } = this.#init;
    // Numbers are not used again: a call that is late may still work on the file of an earlier attempt.
    const number = ++this.#number_last;
    const path = join(dir, `${digits(number)}.tmp`);
    const file = await fs.create(path);
    return { path, file, writer: new RunWriter(file, count_max, this.#secret) };
  }

  async #abandon({ path, file }: Draft): Promise<void> {
    await file.close().catch(() => undefined);
    await this.#init.fs.remove(path).catch(() => undefined);
  }

  /** Finishes a run and makes it count, in the place of others or as the newest. */
  async #commit(draft: Draft, replaced: readonly Run[], applied: Applied): Promise<void> {
    const pieces = await draft.writer.sections();
    const commit = this.#committing.then(() => this.#commitNow(draft, replaced, applied, pieces));
    this.#committing = commit.catch(() => undefined);
    await commit;
  }

  async #commitNow(draft: Draft, replaced: readonly Run[], applied: Applied, pieces: readonly number[]): Promise<void> {
    const { fs, dir } = this.#init;
    const number = ++this.#number_last;
    const order = replaced[0]?.footer.order ?? number;
    const kept = this.#runs.filter((run) => !replaced.includes(run));
    const live = [number, ...kept.map((run) => run.footer.number)];
    const footer = await draft.writer.finish({ number, order, applied, live, pieces });
    const path = join(dir, nameOf(number));
    await fs.rename(draft.path, path);
    draft.path = path;
    await fs.syncDir(dir);
    const run = draft.writer.toRun(footer);
    this.#runs = [...kept, run].toSorted((a, b) => b.footer.order - a.footer.order);
    if (replaced.length === 0) this.#applied = applied;
  }
}

/** A run that is being written. */
interface Draft {
  path: string;
  readonly file: File;
  readonly writer: RunWriter;
}

const digits = (number: number): string => String(number).padStart(8, '0');
const nameOf = (number: number): string => `${digits(number)}.run`;

/** Opens the runs that the newest one lists. */
async function openLive({ fs, dir }: RunIndexInit, newest: number, into: Run[]): Promise<void> {
  const open = async (number: number): Promise<Run> => {
    const run = await Run.open(fs, join(dir, nameOf(number))).catch((error: unknown) => {
      const isMissing = (error as NodeJS.ErrnoException).code === 'ENOENT';
      throw isMissing ? new RunDamaged(`run ${number} of the index is missing`) : error;
    });
    into.push(run);
    if (run.footer.number !== number) throw new RunDamaged(`run ${number} of the index has another number`);
    return run;
  };
  const { footer } = await open(newest);
  for (const number of footer.live) if (number !== newest) await open(number);
  if (new Set(into.map((run) => run.footer.secret)).size > 1) throw new RunDamaged('runs of two indexes are mixed');
}

/** Keeps the files of runs open, even if a merge replaces them, until the result is called. */
function useAll(runs: readonly Run[]): () => void {
  const releases = runs.map((run) => run.use());
  return () => releases.forEach((release) => release());
}
