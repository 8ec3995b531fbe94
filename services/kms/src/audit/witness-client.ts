/**
 * Submits each checkpoint to a witness, which detects a rollback of all local state.
 *
 * Contract: if the witness has seen a later or different log, `onRolledBack` is called once. A witness that does not respond
 * says nothing about the log: the submission is retried, and `problem` states the reason. Without a witness it does nothing.
 * Bound: one request at a time. Cancellation: by the signal.
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
  /** The witness reported a rollback: no more checkpoints are submitted. */
  #isRolledBack = false;
  #problem: string | undefined;

  constructor(init: WitnessClientInit) {
    this.#init = init;
  }

  /** Why the witness did not receive the latest checkpoint. */
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

  /** Submits the latest checkpoint if it is new. Rejects only if the signal aborts. */
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
      this.#problem = isRonError(error) ? error.message : 'the witness cannot be reached';
      if (!isRonError(error, 'audit_integrity')) return;
      this.#isRolledBack = true;
      onRolledBack(error.message);
    }
  }
}
