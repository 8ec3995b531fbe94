/**
 * Writes one record to several volumes concurrently, or syncs several volumes.
 *
 * Contract: writes to the first volumes of an order begin in one step. For each that fails, the next volume is written; and
 * while there are too few copies, after `lag_ms`, also for each that has not answered. It ends when `target` volumes have the
 * record; or when `enough` have it, `mayEnd` agrees, and the rest take longer than `lag_ms` or may be left behind; or when
 * every volume of the order has answered. A volume that did not answer within `lag_ms` is marked slow.
 * Bound: one write for each volume of the order. Cancellation: by the signal of the writes.
 */
import { isRonError, RonError, sched, type Timer } from '@ron/kernel';
import type { Member } from '../membership/member.ts';

export interface CopiesInit {
  /** The volumes to write, the best first. A volume that has the record counts and is not written again. */
  order: readonly Member[];
  has: (member: Member) => boolean;
  /** Must begin in the step in which it is called. */
  write: (member: Member) => Promise<void>;
  /** Whether to write to further volumes. Default: always. */
  mayContinue?: () => boolean;
  /** The intended number of copies. */
  target: number;
  /** The number of copies that suffices. */
  enough: number;
  /** How long the rest may take once there are enough. */
  lag_ms: number;
  /** Whether it may end without waiting for this volume once enough have it. Default: it waits `lag_ms`. */
  mayLeave?: (member: Member) => boolean;
  /** Whether it may end before all volumes have answered. Default: always. */
  mayEnd?: () => boolean;
}

export interface Copies {
  readonly written: readonly Member[];
  readonly failures: ReadonlyMap<Member, unknown>;
}

export function writeCopies(init: CopiesInit): Promise<Copies> {
  return new CopyRun(init).start();
}

class CopyRun {
  readonly #init: CopiesInit;
  readonly #written: Member[] = [];
  readonly #failures = new Map<Member, unknown>();
  readonly #done = sched.park<Copies>('copies');
  #next = 0;
  readonly #running = new Set<Member>();
  /** Those of `#running` that were replaced by other volumes. */
  readonly #late = new Set<Member>();
  #hedge: Timer | undefined;
  #lag: Timer | undefined;
  /** `lag_ms` have passed since there were enough copies. */
  #isLagOver = false;

  constructor(init: CopiesInit) {
    this.#init = init;
  }

  start(): Promise<Copies> {
    this.#writeMore();
    this.#check();
    return this.#done.promise;
  }

  #writeMore(): void {
    const { order, target, has, mayContinue } = this.#init;
    while (this.#written.length + this.#running.size - this.#late.size < target && this.#next < order.length) {
      if (this.#next >= target && mayContinue?.() === false) return;
      const member = order[this.#next++]!;
      if (has(member)) this.#written.push(member);
      else this.#write(member);
    }
  }

  #write(member: Member): void {
    this.#running.add(member);
    this.#init.write(member).then(
      () => {
        this.#written.push(member);
        this.#ended(member);
      },
      (error: unknown) => {
        this.#failures.set(member, error);
        this.#ended(member);
      },
    );
  }

  #ended(member: Member): void {
    this.#running.delete(member);
    this.#late.delete(member);
    this.#writeMore();
    this.#check();
  }

  #check(): void {
    if (this.#running.size === 0) return this.#finish();
    const { enough, lag_ms, order } = this.#init;
    if (this.#written.length >= enough) {
      if (this.#mayEnd()) return this.#finish();
      this.#lag ??= sched.timer(lag_ms, () => this.#endLag(), 'copies.lag');
    } else if (this.#next < order.length) {
      this.#hedge ??= sched.timer(lag_ms, () => this.#hedgeLate(), 'copies.hedge');
    }
  }

  /** A disk that hangs does not report a failure. */
  #hedgeLate(): void {
    this.#hedge = undefined;
    if (this.#written.length >= this.#init.enough) return;
    for (const member of this.#running) {
      member.wroteSlowly();
      this.#late.add(member);
    }
    this.#writeMore();
    this.#check();
  }

  #endLag(): void {
    this.#isLagOver = true;
    for (const member of this.#running) member.wroteSlowly();
    this.#check();
  }

  /** Whether it may end without the volumes that have not answered, given that enough have. */
  #mayEnd(): boolean {
    const { mayLeave, mayEnd } = this.#init;
    const isLeft = this.#isLagOver || (mayLeave !== undefined && [...this.#running].every(mayLeave));
    return isLeft && mayEnd?.() !== false;
  }

  #finish(): void {
    this.#lag?.cancel();
    this.#hedge?.cancel();
    this.#done.wake({ written: [...this.#written], failures: this.#failures });
  }
}

/** The error for too few copies. */
export function shortOf(init: { enough: number; written: number; failures: Iterable<unknown> }): RonError {
  const causes = [...init.failures];
  const cause = causes.find((error) => isRonError(error, 'storage_full')) ?? causes[0];
  const what = `${init.written} of ${init.enough} copies were written`;
  if (isRonError(cause, 'storage_full')) return new RonError('storage_full', what, { cause });
  if (isRonError(cause, 'busy')) return new RonError('busy', what, { cause });
  return new RonError('not_ready', what, { retry_after_ms: 1000, ...(cause !== undefined && { cause }) });
}
