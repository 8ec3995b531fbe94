/**
 * Decides when to make stripes: on request, after a repair, and at intervals. Without erasure coding it does nothing.
 *
 * Contract: `make` resolves after a run that began after the call. Stripes that cannot be made are tried again by the next run.
 * Bound: one run at a time. Cancellation: no run begins once a drain has begun; the signal ends a running one.
 */
import type { Striper } from '@ron/durability';
import { Notify } from '@ron/kernel';
import type { Log } from '@ron/telemetry';

export interface StripeScheduleInit {
  readonly striper: Striper | undefined;
  readonly interval_ms: () => number;
  readonly isStopping: () => boolean;
  readonly log: Log;
}

export class StripeSchedule {
  readonly #init: StripeScheduleInit;
  readonly #due = new Notify('stripes');
  #last: Promise<unknown> = Promise.resolve();

  constructor(init: StripeScheduleInit) {
    this.#init = init;
  }

  get isEnabled(): boolean {
    return this.#init.striper !== undefined;
  }

  wake(): void {
    this.#due.notifyOne();
  }

  async run(stopping: AbortSignal): Promise<void> {
    const { interval_ms, isStopping, log } = this.#init;
    while (this.isEnabled) {
      await this.#due.notified(stopping, { within_ms: interval_ms() });
      if (stopping.aborted || isStopping()) return;
      await this.make(stopping).catch((error: unknown) => {
        stopping.throwIfAborted();
        log.warn({ err: error }, 'failed to make stripes');
      });
    }
  }

  make(signal: AbortSignal): Promise<void> {
    const { striper } = this.#init;
    if (striper === undefined) return Promise.resolve();
    const done = this.#last.then(async () => {
      if (!signal.aborted) await striper.run(signal);
    });
    this.#last = done.catch(() => undefined);
    return done;
  }
}
