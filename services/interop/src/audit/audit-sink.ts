/**
 * The task `audit_sink`: writes audit events to the file or to standard output, and calls `onSecond` for the sums of refusals.
 *
 * Contract: events are written in order. Without `write` they are dropped; deliveries stay in the list of recent ones. An event that
 * cannot be written is dropped and counted; the service goes on.
 * Bound: `EVENTS_MAX` events for each write. Cancellation: at a stop the task ends after the write in progress; then `flush`
 * writes the queued events.
 */
import { isRonError, NEVER, sleep, type Mpsc } from '@ron/kernel';
import type { AuditEvent } from './audit-event.ts';

const EVENTS_MAX = 128;
const SUMS_EVERY_MS = 1000;

export interface AuditSinkInit {
  readonly channel: Mpsc<AuditEvent>;
  /** Writes complete lines. Undefined: nothing is written. */
  readonly write: ((lines: string) => Promise<void>) | undefined;
  /** Called each second. */
  readonly onSecond: () => void;
  readonly onProblem: (problem: string) => void;
}

export class AuditSink {
  readonly #init: AuditSinkInit;
  failed_total = 0;
  #isFailing = false;

  constructor(init: AuditSinkInit) {
    this.#init = init;
  }

  async run(stopping: AbortSignal): Promise<void> {
    await Promise.all([this.#writeEvents(stopping), this.#eachSecond(stopping)]);
  }

  /** Writes the queued events. */
  async flush(): Promise<void> {
    const { channel } = this.#init;
    while (channel.depth > 0) await this.#write(await channel.recvMany(EVENTS_MAX, NEVER));
  }

  async #writeEvents(stopping: AbortSignal): Promise<void> {
    const { channel } = this.#init;
    try {
      for (;;) {
        const events = await channel.recvMany(EVENTS_MAX, stopping);
        if (events.length === 0) return;
        await this.#write(events);
      }
    } catch (error) {
      if (!stopping.aborted) throw error;
    }
  }

  async #eachSecond(stopping: AbortSignal): Promise<void> {
    try {
      for (;;) {
        await sleep(SUMS_EVERY_MS, stopping, 'audit_sums');
        this.#init.onSecond();
      }
    } catch (error) {
      if (!stopping.aborted) throw error;
    }
  }

  async #write(events: readonly AuditEvent[]): Promise<void> {
    const { write, onProblem } = this.#init;
    if (write === undefined) return;
    try {
      await write(events.map((event) => `${JSON.stringify(event)}\n`).join(''));
      this.#isFailing = false;
    } catch (error) {
      this.failed_total += events.length;
      if (!this.#isFailing) onProblem(isRonError(error) ? error.message : String(error));
      this.#isFailing = true;
    }
  }
}
