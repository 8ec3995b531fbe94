/**
 * Refreshes the attestation of the backend in the background.
 *
 * Contract: `current` is the latest attestation; `problem` is the reason if the last refresh failed. A backend without
 * attestation has neither. Bound: one refresh at a time, within its deadline. Cancellation: by the signal.
 */
import type { Attestation, Backend } from '@ron/custody';
import { isRonError, sched, sleep, type Deadline } from '@ron/kernel';

export interface AttestationRefresherInit {
  readonly backend: Pick<Backend, 'attest'>;
  readonly interval_ms: () => number;
  readonly deadline: () => Deadline;
  readonly isStopping: () => boolean;
}

export class AttestationRefresher {
  readonly #init: AttestationRefresherInit;
  #current: Attestation | undefined;
  #problem: string | undefined;

  constructor(init: AttestationRefresherInit) {
    this.#init = init;
  }

  get current(): Attestation | undefined {
    return this.#current;
  }

  get problem(): string | undefined {
    return this.#problem;
  }

  async run(stopping: AbortSignal): Promise<void> {
    while (!this.#init.isStopping()) {
      await this.refresh();
      // Jitter, so that several nodes do not refresh at the same time.
      await sleep(this.#init.interval_ms() * (0.9 + sched.random() / 10), stopping, 'attestation_refresher');
    }
  }

  /** Never rejects. */
  async refresh(): Promise<void> {
    const { backend, deadline } = this.#init;
    if (backend.attest === undefined) return;
    try {
      using budget = deadline();
      // [kms I-2] The refresher is the only writer, and it replaces the attestation as a whole.
      this.#current = await budget.run((signal) => backend.attest!(signal));
      this.#problem = undefined;
    } catch (error) {
      this.#problem = isRonError(error) ? error.message : 'the backend returned no attestation';
    }
  }
}
