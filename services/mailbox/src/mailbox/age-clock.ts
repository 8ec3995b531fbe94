/**
 * The time of messages and dead letters, by which they age.
 *
 * Contract: follows the wall clock. A wall clock that jumps by more than `JUMP_MS` is followed only once it has kept its new
 * time for `HOLD_MS`; until then the time goes on by the monotonic clock. So a wall clock that is wrong for less than
 * `HOLD_MS` expires nothing. The same holds for a start more than `START_JUMP_MS` after the newest record of the log: the time
 * goes on from that record. Never below 0.
 */
import { sched } from '@ron/kernel';

const JUMP_MS = 60_000;
const HOLD_MS = 3_600_000;
const START_JUMP_MS = 86_400_000;

/** A jump of the wall clock that is not followed yet. */
interface Jump {
  /** By the monotonic clock. */
  readonly since_ms: number;
  readonly by_ms: number;
}

export class AgeClock {
  #time_ms = sched.wall_ms();
  #read_ms = sched.now_ms();
  #jump: Jump | undefined;

  /** The log was read: goes on from its newest record if the wall clock is far ahead of it. Zero: the log is empty. */
  start(newest_ms: number): void {
    if (newest_ms > 0 && this.#time_ms > newest_ms + START_JUMP_MS) this.#time_ms = newest_ms;
  }

  /** Unix time in whole milliseconds. */
  now_ms(): number {
    const now_ms = sched.now_ms();
    const time_ms = this.#time_ms + now_ms - this.#read_ms;
    this.#read_ms = now_ms;
    const by_ms = sched.wall_ms() - time_ms;
    this.#time_ms = this.#follows(by_ms, now_ms) ? time_ms + by_ms : time_ms;
    return Math.max(0, Math.floor(this.#time_ms));
  }

  /**
   * For a new record: the wall clock, but not before `now_ms`. A jump ahead that is followed later makes the record as old as
   * it is, and a clock that is set back for a while does not make it old.
   */
  stamp_ms(): number {
    return Math.max(this.now_ms(), Math.floor(sched.wall_ms()));
  }

  #follows(by_ms: number, now_ms: number): boolean {
    if (Math.abs(by_ms) > JUMP_MS) {
      if (this.#jump === undefined || Math.abs(by_ms - this.#jump.by_ms) > JUMP_MS)
        this.#jump = { since_ms: now_ms, by_ms };
      if (now_ms - this.#jump.since_ms < HOLD_MS) return false;
    }
    this.#jump = undefined;
    return true;
  }
}
