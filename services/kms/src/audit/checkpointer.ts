/**
 * Signs checkpoints of the log periodically, and reports when one is late.
 *
 * Contract: a checkpoint covers an entry at most `interval_ms` plus one deadline after it was written, or `problem` states
 * the delay. A checkpoint covers every event that was recorded before the call. The anchor stores it before it is
 * published, so no published checkpoint is unknown to the anchor. A late checkpoint is reported as missed but still takes
 * effect when it completes.
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
  /** Resolves when every event recorded so far is in the log. */
  readonly flushed: (signal: AbortSignal) => Promise<void>;
  /** Requests a checkpoint now. */
  readonly due: Mpsc<'due'>;
  /** Entries that the last checkpoint covers. */
  readonly covered: Watch<number>;
  readonly deadline: () => Deadline;
  readonly interval_ms: () => number;
  /** The number of entries that triggers a checkpoint immediately. */
  readonly every_ops: () => number;
  /** Stores each checkpoint before it is published. */
  readonly recorder: CheckpointRecorder;
  readonly onMissed: (error: unknown) => void;
}

/** Delay of a requested checkpoint, so that concurrent waiters share one. */
const GATHER_MS = 20;
/** Delay before a retry after a missed checkpoint. */
const RETRY_MS = 200;

export class Checkpointer {
  readonly #init: CheckpointerInit;
  /** Since when an entry has been waiting for a checkpoint. */
  #uncovered_ms: number | undefined;
  #failure: string | undefined;
  /** When the last checkpoint was due. Counting from there, an entry waits at most one interval and one deadline. */
  #due_ms = sched.now_ms();

  constructor(init: CheckpointerInit) {
    this.#init = init;
    if (init.log.size > init.covered.value) this.#uncovered_ms = sched.now_ms();
  }

  /** Why the log is currently unreliable. */
  get problem(): string | undefined {
    if (this.#uncovered_ms === undefined) return undefined;
    const waited_ms = sched.now_ms() - this.#uncovered_ms;
    const late_ms = waited_ms - this.#init.interval_ms() - this.#init.deadline().budget_ms;
    const why = this.#failure === undefined ? '' : `: ${this.#failure}`;
    if (late_ms > 0) return `checkpoint ${Math.ceil(late_ms / 1000)} s late${why}`;
    return this.#failure === undefined ? undefined : `the last checkpoint failed${why}`;
  }

  /** The appender calls it after it wrote entries. */
  appended(): void {
    this.#uncovered_ms ??= sched.now_ms();
    if (this.#init.log.size - this.#init.covered.value >= this.#init.every_ops()) this.request();
  }

  request(): void {
    this.#init.due.trySend('due');
  }

  /** Waits until entry `index` is covered; returns the size of that checkpoint. */
  async waitUntilCovered(index: number, signal: AbortSignal): Promise<number> {
    const covered = this.#init.covered.subscribe();
    try {
      while (covered.value <= index) {
        this.request();
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
      // A failing disk is not retried on every append.
      await sleep(RETRY_MS, stopping, 'checkpoint.retry');
    }
  }

  /** Writes one checkpoint now. Never rejects; returns false if it was missed. */
  async write(): Promise<boolean> {
    const { log, deadline, flushed, recorder, onMissed } = this.#init;
    const began_ms = sched.now_ms();
    using budget = deadline();
    try {
      // [kms I-4]
      await budget.run(async (signal) => {
        await flushed(signal);
        this.#written(await log.writeCheckpoint(signal, recorder), began_ms);
      });
      return true;
    } catch (error) {
      this.#failure = isRonError(error) ? error.message : 'the checkpoint could not be written';
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
      // The interval elapsed without a request.
      if (stopping.aborted) throw error;
    }
  }
}
