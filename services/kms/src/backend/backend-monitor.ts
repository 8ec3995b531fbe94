/**
 * Looks after the backend: brings back sessions that died, and tells the rest of the service whether it is there.
 *
 * Promise: it looks every `interval_ms`; while the backend is away it tries again after 100 ms to 5 s, doubling, with
 * jitter. Each change is told once. Bound: one look at a time, within its deadline. Cancellation: by the signal.
 */
import type { Backend } from '@ron/custody';
import { isRonError, sched, sleep, type Deadline } from '@ron/kernel';

export interface BackendMonitorInit {
  readonly backend: Pick<Backend, 'state' | 'probe'>;
  readonly interval_ms: () => number;
  readonly deadline: () => Deadline;
  /** Whether the service is on its way down: then sessions are left as they are. */
  readonly isStopping: () => boolean;
  /** After each look. */
  readonly onProbe: (isThere: boolean) => void;
  readonly onChange: (problem: string | undefined) => void;
  /** Tries again, within the deadline, where that may help. */
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

  /** Why the backend cannot be used. Asks the backend itself, so that nothing waits for the next look. */
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
      using budget = deadline();
      await retry(async (signal) => await backend.probe?.(signal), budget);
      const { ok, reason } = backend.state();
      this.#problem = ok ? undefined : reason;
    } catch (error) {
      this.#problem = isRonError(error) ? error.message : 'the backend does not answer';
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
