/**
 * Shows each checkpoint to a witness, who remembers what we may have been made to forget.
 *
 * Promise: a witness that has seen more than we have is told to `onRolledBack`, once. A witness that does not answer says
 * nothing about the log: it is asked again, and `problem` says so. Without a witness it does nothing.
 * Bound: one question at a time. Cancellation: by the signal.
 */
import { isRonError, sched, sleep, type Watch } from '@ron/kernel';
import type { TransparencyLog, Witness } from '@ron/tlog';

export interface WitnessClientInit {
  readonly witness: Pick<Witness, 'cosign'> | undefined;
  readonly log: TransparencyLog | undefined;
  /** Changes with each checkpoint. */
  readonly covered: Watch<number>;
  readonly onRolledBack: (why: string) => void;
}

const RETRY_MS = 5000;

export class WitnessClient {
  readonly #init: WitnessClientInit;
  #shown = 0;
  /** It knows better than we do: nothing more will be shown to it. */
  #isRolledBack = false;
  #problem: string | undefined;

  constructor(init: WitnessClientInit) {
    this.#init = init;
  }

  /** Why the witness did not see the last checkpoint. */
  get problem(): string | undefined {
    return this.#problem;
  }

  async run(stopping: AbortSignal): Promise<void> {
    const covered = this.#init.covered.subscribe();
    for (;;) {
      await this.submit(stopping);
      if (this.#problem === undefined) await covered.changed(stopping);
      else await sleep(RETRY_MS * (0.5 + sched.random() / 2), stopping, 'witness');
    }
  }

  /** Shows the last checkpoint, if there is a new one. Rejects only when the signal aborts. */
  async submit(signal: AbortSignal): Promise<void> {
    const { witness, log, onRolledBack } = this.#init;
    const checkpoint = log?.checkpoint;
    if (witness === undefined || log === undefined || checkpoint === undefined || checkpoint.size <= this.#shown)
      return;
    if (this.#isRolledBack) return;
    try {
      const { lines } = await witness.cosign(checkpoint, (from, to) => log.consistency(from, to), signal);
      await log.addCosignatures(checkpoint.size, lines, signal);
      this.#shown = checkpoint.size;
      this.#problem = undefined;
    } catch (error) {
      signal.throwIfAborted();
      this.#problem = isRonError(error) ? error.message : 'the witness cannot be asked';
      if (!isRonError(error, 'audit_integrity')) return;
      this.#isRolledBack = true;
      onRolledBack(error.message);
    }
  }
}
