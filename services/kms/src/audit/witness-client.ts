/**
 * Submits each checkpoint to a witness, which detects a rollback of all local state.
 *
 * Contract: if the witness has seen a later or different log, `onRolledBack` is called once. A witness that does not
 * respond says nothing about the log: the submission is retried, and `problem` states the reason at once. `lag_ms` is the
 * time for which a checkpoint has been waiting for its cosignature, by the monotonic clock. Until the first cosignature
 * of the process it counts from the last one of the process before (vault/last-cosigned.ts), so restarts do not shorten it;
 * that time is durable before the first submission returns. Without a witness it does nothing.
 * Bound: one request at a time. Cancellation: by the signal.
 */
import { isRonError, sched, sleep, type Watch } from '@ron/kernel';
import type { TransparencyLog, Witness } from '@ron/tlog';
import type { LastCosigned } from '../vault/last-cosigned.ts';

export interface WitnessClientInit {
  readonly witness: Pick<Witness, 'cosign'> | undefined;
  /** Undefined if it could not be opened. */
  readonly log: TransparencyLog | undefined;
  /** Changes with each checkpoint. */
  readonly covered: Watch<number>;
  readonly last_cosigned: LastCosigned;
  readonly onRolledBack: (why: string) => void;
}

const RETRY_MS = 5000;

export class WitnessClient {
  readonly #init: WitnessClientInit;
  /** Entries of the last checkpoint that has its cosignature. */
  #cosigned = 0;
  /** Since when a checkpoint has been waiting. */
  #waiting_ms: number | undefined;
  #isRolledBack = false;
  #problem: string | undefined;

  constructor(init: WitnessClientInit) {
    this.#init = init;
  }

  /** Why the witness did not cosign the latest checkpoint. */
  get problem(): string | undefined {
    return this.#problem;
  }

  /** Entries that the witness has cosigned since the start; undefined without a witness. */
  get cosigned(): number | undefined {
    return this.#init.witness === undefined ? undefined : this.#cosigned;
  }

  get lag_ms(): number {
    return this.#waiting_ms === undefined ? 0 : sched.now_ms() - this.#waiting_ms;
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
    const { witness, log, last_cosigned, onRolledBack } = this.#init;
    const checkpoint = log?.checkpoint;
    if (witness === undefined || log === undefined || checkpoint === undefined || this.#isRolledBack) return;
    const { size } = checkpoint;
    if (size <= this.#cosigned) return;
    this.#waiting_ms ??= sched.now_ms() - (this.#cosigned === 0 ? last_cosigned.age_ms : 0);
    try {
      const { lines } = await witness.cosign(checkpoint, (from, to) => log.consistency(from, to), signal);
      await log.addCosignatures(size, lines, signal);
      await last_cosigned.renew(signal);
      this.#cosigned = size;
      this.#problem = undefined;
      this.#waiting_ms = log.checkpoint?.size === size ? undefined : sched.now_ms();
    } catch (error) {
      signal.throwIfAborted();
      this.#problem = isRonError(error) ? error.message : 'the witness cannot be reached';
      if (!isRonError(error, 'audit_integrity')) return await this.#beginWait(signal);
      this.#isRolledBack = true;
      onRolledBack(error.message);
    }
  }

  async #beginWait(signal: AbortSignal): Promise<void> {
    try {
      await this.#init.last_cosigned.begin(signal);
    } catch {
      signal.throwIfAborted();
      // A store that cannot be written has no anchor for the next checkpoint either. The next submission tries again.
    }
  }
}
