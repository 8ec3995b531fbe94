/**
 * Probes the backend, which reopens dead sessions, and reports its availability to the service.
 *
 * Contract: it probes every `interval_ms`; while the backend is unavailable it backs off from 100 ms to 5 s, doubling, with
 * jitter. Each change is reported once. Bound: one probe at a time, within its deadline. Cancellation: by the signal.
 */
import type { Backend } from '@ron/custody';
import { isRonError, sched, sleep, type Deadline } from '@ron/kernel';

export interface BackendMonitorInit {
  readonly backend: Pick<Backend, 'state' | 'probe'>;
  readonly interval_ms: () => number;
  readonly deadline: () => Deadline;
  /** Whether the service is shutting down: then sessions are not reopened. */
  readonly isStopping: () => boolean;
  /** Called after each probe. */
  readonly onProbe: (isAvailable: boolean) => void;
  readonly onChange: (problem: string | undefined) => void;
  /** Retries within the deadline. */
  readonly retry: (work: (signal: AbortSignal) => Promise<void>, deadline: Deadline) => Promise<void>;
}

const BACKOFF_MS_MIN = 100;
const BACKOFF_MS_MAX = 5000;

export class BackendMonitor {
  readonly #init: BackendMonitorInit;
  #problem: string | undefined;
  #failures = 0;

  constructor(init: BackendMonitorInit) {
    this.#init = init;
  }

  /** Why the backend cannot be used. Reads the state of the backend itself, so that it does not lag behind the probes. */
  get problem(): string | undefined {
    const { ok, reason } = this.#init.backend.state();
    return ok ? this.#problem : reason;
  }

  async run(stopping: AbortSignal): Promise<void> {
    while (!this.#init.isStopping()) {
      await this.probe();
      await sleep(this.#pause_ms(), stopping, 'backend_keeper');
    }
  }

  /** Never rejects. */
  async probe(): Promise<void> {
    const { backend, deadline, onProbe, onChange, retry } = this.#init;
    const before = this.#problem;
    try {
      // [kms I-4]
      using budget = deadline();
      await retry(async (signal) => await backend.probe?.(signal), budget);
      const { ok, reason } = backend.state();
      this.#problem = ok ? undefined : reason;
    } catch (error) {
      this.#problem = isRonError(error) ? error.message : 'the backend does not respond';
    }
    this.#failures = this.#problem === undefined ? 0 : this.#failures + 1;
    onProbe(this.#problem === undefined);
    if (before !== this.#problem) onChange(this.#problem);
  }

  #pause_ms(): number {
    if (this.#failures === 0) return this.#init.interval_ms();
    const backoff_ms = Math.min(BACKOFF_MS_MAX, BACKOFF_MS_MIN * 2 ** Math.min(this.#failures - 1, 10));
    return backoff_ms * (0.5 + sched.random() / 2);
  }
}
