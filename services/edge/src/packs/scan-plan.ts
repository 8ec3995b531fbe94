/**
 * The state of scans of the directory: files that wait for verification, and files that were refused.
 *
 * Contract: a file is planned if it is neither mounted undamaged with its present identity nor refused in its present state. An urgent scan plans refused files
 * again, and a poll those that were refused for a reason that may pass. A file stays refused until it is mounted. A file
 * that changed a moment ago may still be written to: it waits until it has not changed for `SETTLE_MS`, unless the scan is
 * urgent. Two files with the same stem are both refused, and so is a file whose stem is not a name.
 * Bound: one entry for each file of the directory.
 */
import { sched } from '@ron/kernel';
import type { PackFile } from './pack-directory.ts';

const SETTLE_MS = 1000;

/** A file that is not mounted, and why. */
export interface RefusedFile {
  readonly name: string;
  readonly file: string;
  readonly reason: string;
}

interface KnownRefusal extends RefusedFile {
  readonly state: string;
  /** Refused because of the disk, a deadline or a limit, not because of its content. */
  readonly isTransient: boolean;
}

export interface ScanInit {
  readonly files: readonly PackFile[];
  /** The identity of the file of a mounted pack that is not damaged. */
  readonly identityOf: (name: string) => string | undefined;
  readonly isUrgent: boolean;
  /** No change was reported: it was time to look again. */
  readonly isPoll: boolean;
}

export class ScanPlan {
  #planned: PackFile[] = [];
  #verifying = new Set<string>();
  readonly #refused = new Map<string, KnownRefusal>();
  #problem: string | undefined;
  #settles_ms: number | undefined;
  #isUrgent = false;

  /** Refused files by their stem. */
  get bad(): ReadonlyMap<string, RefusedFile> {
    return this.#refused;
  }

  /** Files that wait for verification or are being verified. */
  get pending(): number {
    return this.#planned.length;
  }

  /** Why the directory cannot be read. */
  get problem(): string | undefined {
    return this.#problem;
  }

  /** How long until a file that changed a moment ago can be verified; undefined if there is none. */
  get settles_ms(): number | undefined {
    return this.#settles_ms;
  }

  /** Whether the last scan was requested: by an operator, or by the start. */
  get isUrgent(): boolean {
    return this.#isUrgent;
  }

  isPending(name: string): boolean {
    return this.#verifying.has(name) || this.#planned.some((file) => file.name === name);
  }

  /** Returns the names of all files, and the files that this scan refused. */
  update({ files, identityOf, isUrgent, isPoll }: ScanInit): { names: ReadonlySet<string>; refused: RefusedFile[] } {
    this.#problem = undefined;
    this.#settles_ms = undefined;
    this.#isUrgent = isUrgent;
    this.#verifying.clear();
    const byName = Map.groupBy(files, ({ name }) => name);
    for (const name of this.#refused.keys()) if (!byName.has(name)) this.#refused.delete(name);
    const planned: PackFile[] = [];
    const refused: RefusedFile[] = [];
    for (const [name, [file, other]] of byName) {
      const state = [file!.state, other?.state].join();
      const reason = refusalOf(file!, other);
      const known = this.#refused.get(name);
      const isDueAgain = isUrgent || (isPoll && known?.isTransient === true);
      if (known?.state === state && !isDueAgain) continue;
      if (reason !== undefined) {
        this.#refused.set(name, { name, file: file!.file, reason, state, isTransient: false });
        refused.push({ name, file: file!.file, reason });
      } else if (identityOf(name) === file!.identity) {
        this.#refused.delete(name);
      } else if (isUrgent || this.#isSettled(file!)) {
        planned.push(file!);
      }
    }
    this.#planned = planned;
    return { names: new Set(byName.keys()), refused };
  }

  /** The directory cannot be read. */
  fail(problem: string): void {
    this.#problem = problem;
  }

  /** Takes the next files, at most `count`. */
  next(count: number): PackFile[] {
    const files = this.#planned.splice(0, count);
    this.#verifying = new Set(files.map(({ name }) => name));
    return files;
  }

  refuse({ name, file, state }: PackFile, reason: string, isTransient: boolean): void {
    this.#verifying.delete(name);
    this.#refused.set(name, { name, file, reason, state: [state, undefined].join(), isTransient });
  }

  /** The pack was mounted or removed by another way. */
  forget(name: string): void {
    this.#verifying.delete(name);
    this.#refused.delete(name);
    this.#planned = this.#planned.filter((file) => file.name !== name);
  }

  #isSettled({ mtime_ms }: PackFile): boolean {
    // A time in the future counts as settled.
    const since_ms = sched.wall_ms() - mtime_ms;
    if (since_ms < 0 || since_ms >= SETTLE_MS) return true;
    this.#settles_ms = SETTLE_MS;
    return false;
  }
}

function refusalOf(file: PackFile, other: PackFile | undefined): string | undefined {
  if (file.isMisnamed) return 'its name does not match [a-z0-9_-]{1,64}: rename it';
  if (other === undefined) return undefined;
  return `${other.file} has the same name: remove one of the two`;
}
