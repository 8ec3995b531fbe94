/**
 * Signs the log again and again, and says when it is late.
 *
 * Promise: an entry is covered by a checkpoint at most `interval_ms` and one deadline after it was written, or `problem`
 * says by how much it is late. A checkpoint covers every event that was recorded before it was asked for, and is remembered
 * before it is published: whatever others have seen of the log, the keystore knows of. One that is late is told as missed,
 * and counts all the same when it is there in the end: a slow disk makes checkpoints late, and not none.
 * Bound: one checkpoint at a time. Cancellation: each is bounded by its deadline; waiters by their signals.
 */
import type { CheckpointRecorder, SignedCheckpoint } from '@ron/tlog';
import { Deadline, isRonError, sched, sleep, type Mpsc, type Watch } from '@ron/kernel';

export interface CheckpointLog {
  readonly size: number;
  writeCheckpoint(signal: AbortSignal, recorder: CheckpointRecorder): Promise<SignedCheckpoint>;
}

export interface CheckpointerInit {
  readonly log: CheckpointLog;
  /** Resolves when all that was recorded before is in the log. */
  readonly flushed: (signal: AbortSignal) => Promise<void>;
  /** Asks for one now. */
  readonly due: Mpsc<'due'>;
  /** Entries that the last checkpoint covers. */
  readonly covered: Watch<number>;
  readonly deadline: () => Deadline;
  readonly interval_ms: () => number;
  /** So many entries ask for one at once. */
  readonly every_ops: () => number;
  /** Knows of each before it is published. */
  readonly recorder: CheckpointRecorder;
  readonly onMissed: (error: unknown) => void;
}

/** How soon after one that was asked for the next may come: the waiters of a moment share one. */
const GATHER_MS = 20;
/** Until one that was missed is tried again. */
const RETRY_MS = 200;

export class Checkpointer {
  readonly #init: CheckpointerInit;
  /** Since when an entry waits for a checkpoint. */
  #uncovered_ms: number | undefined;
  #failure: string | undefined;
  /** When the last one was due: intervals count from there, so that an entry waits no longer than one and a deadline. */
  #due_ms = sched.now_ms();

  constructor(init: CheckpointerInit) {
    this.#init = init;
    if (init.log.size > init.covered.value) this.#uncovered_ms = sched.now_ms();
  }

  /** Why the log is not to be relied upon at present. */
  get problem(): string | undefined {
    if (this.#uncovered_ms === undefined) return undefined;
    const waited_ms = sched.now_ms() - this.#uncovered_ms;
    const late_ms = waited_ms - this.#init.interval_ms() - this.#init.deadline().budget_ms;
    const why = this.#failure === undefined ? '' : `: ${this.#failure}`;
    if (late_ms > 0) return `checkpoint ${Math.ceil(late_ms / 1000)} s late${why}`;
    return this.#failure === undefined ? undefined : `the last checkpoint failed${why}`;
  }

  /** The appender wrote entries. */
  appended(): void {
    this.#uncovered_ms ??= sched.now_ms();
    if (this.#init.log.size - this.#init.covered.value >= this.#init.every_ops()) this.ask();
  }

  ask(): void {
    this.#init.due.trySend('due');
  }

  /** Waits until entry `index` is covered; the size of the checkpoint that does. */
  async covers(index: number, signal: AbortSignal): Promise<number> {
    const covered = this.#init.covered.subscribe();
    try {
      while (covered.value <= index) {
        this.ask();
        await covered.changed(signal);
      }
      return covered.value;
    } finally {
      covered.close();
    }
  }

  async run(stopping: AbortSignal): Promise<void> {
    for (;;) {
      await this.#untilDue(stopping);
      this.#due_ms = sched.now_ms();
      if (this.#init.log.size <= this.#init.covered.value || (await this.write())) continue;
      // A disk that fails is not asked again by every append.
      await sleep(RETRY_MS, stopping, 'checkpoint.retry');
    }
  }

  /** One checkpoint, now. Never rejects; false when it was missed. */
  async write(): Promise<boolean> {
    const { log, deadline, flushed, recorder, onMissed } = this.#init;
    const began_ms = sched.now_ms();
    using budget = deadline();
    try {
      await budget.run(async (signal) => {
        await flushed(signal);
        this.#written(await log.writeCheckpoint(signal, recorder), began_ms);
      });
      return true;
    } catch (error) {
      this.#failure = isRonError(error) ? error.message : 'it could not be written';
      onMissed(error);
      return false;
    }
  }

  #written({ size }: SignedCheckpoint, began_ms: number): void {
    const { log, covered } = this.#init;
    this.#failure = undefined;
    this.#uncovered_ms = log.size > size ? began_ms : undefined;
    covered.set(size);
  }

  async #untilDue(stopping: AbortSignal): Promise<void> {
    const left_ms = this.#due_ms + this.#init.interval_ms() - sched.now_ms();
    using interval = Deadline.after('checkpoint_interval', left_ms, { signal: stopping });
    try {
      await this.#init.due.recv(interval.signal);
      await sleep(GATHER_MS, stopping, 'checkpoint.gather');
    } catch (error) {
      // The interval is over: that is what was waited for.
      if (stopping.aborted) throw error;
    }
  }
}
