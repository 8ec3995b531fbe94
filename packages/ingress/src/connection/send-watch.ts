/**
 * Decides whether a client still reads its answer, for one connection.
 *
 * Contract: a client that acknowledges at least `rate_bytes_per_s_min` on average is never cut. Acknowledged bytes arrive
 * in steps: a receiver with a full buffer announces room only once a segment fits (64 KiB on loopback), and clients that
 * limit their rate read a burst and then pause. So a pause alone proves nothing. Each acknowledged byte earns one byte of
 * credit; the minimum rate drains it; a client without credit is cut.
 * Bound: a client that stops reading is cut `stall_ms` + (bytes it acknowledged, at most `CREDIT_BYTES_MAX`) / rate after
 * its last byte. One that never reads acknowledges its receive buffer, about 128 KiB. Without a minimum rate the limit is
 * `QUIET_MS_MAX` without progress.
 * While the kernel's send queue is unknown, bytes that the kernel accepted count as acknowledged. At `quiet` the owner
 * measures the queue.
 *
 *   const watch = new SendWatch();
 *   switch (watch.check(now_ms, sent_bytes, limits)) {
 *     case 'quiet': watch.measured(sent_bytes, (await queuedBytes([socket], signal)).get(socket)!); break;
 *     case 'cut': socket.destroy();
 *   }
 */
import type { TransferLimits } from './transfer-watch.ts';

/** Covers `curl --limit-rate`, which reads up to 1.6 MB at once, at twice the minimum rate or more. */
export const CREDIT_BYTES_MAX = 1024 * 1024;
/** The limit without progress when there is no minimum rate. */
export const QUIET_MS_MAX = 120_000;

export type SendState = 'ok' | 'quiet' | 'cut';

export class SendWatch {
  /** Bytes handed to the kernel when the connection was last idle. */
  #base_bytes = 0;
  #queued_bytes: number | undefined;
  #moved_bytes = 0;
  #moved_ms = 0;
  #credit_bytes = 0;
  /** The credit of a client that has not yet acknowledged a byte. */
  #grace_bytes = 0;
  /** Undefined while no bytes are pending: the credit is not drained. */
  #checked_ms: number | undefined;
  #running = false;
  #isStalled = false;

  /** Whether the client acknowledged nothing for `stall_ms`, as of the last `check`. */
  get isStalled(): boolean {
    return this.#isStalled;
  }

  /** The connection is idle: the next `check` begins a new answer. */
  rest(sent_bytes: number): void {
    this.#running = false;
    this.#isStalled = false;
    this.#base_bytes = sent_bytes;
  }

  /** No bytes are pending. The credit stays as it is. */
  pause(): void {
    this.#checked_ms = undefined;
    this.#isStalled = false;
  }

  /** `queued_bytes` of the `sent_bytes` are not acknowledged yet. */
  measured(sent_bytes: number, queued_bytes: number): void {
    const isFirst = this.#queued_bytes === undefined;
    this.#queued_bytes = queued_bytes;
    if (!isFirst || !this.#running) return;
    // Until now every accepted byte counted as acknowledged.
    this.#moved_bytes = sent_bytes - queued_bytes;
    const earned_bytes = Math.max(0, this.#moved_bytes - this.#base_bytes);
    this.#credit_bytes = Math.min(this.#credit_bytes, this.#grace_bytes + earned_bytes);
  }

  /** `sent_bytes`: accepted by the kernel since the connection was opened. Call it only while bytes are pending. */
  check(now_ms: number, sent_bytes: number, limits: TransferLimits): SendState {
    const { stall_ms, rate_bytes_per_s_min } = limits;
    if (!this.#running) this.#begin(now_ms, limits);
    if (this.#checked_ms === undefined) this.#checked_ms = this.#moved_ms = now_ms;
    const elapsed_ms = now_ms - this.#checked_ms;
    this.#checked_ms = now_ms;
    const progress_bytes = sent_bytes - (this.#queued_bytes ?? 0) - this.#moved_bytes;
    if (progress_bytes > 0) {
      this.#moved_bytes += progress_bytes;
      this.#moved_ms = now_ms;
      this.#credit_bytes = Math.min(this.#credit_bytes + progress_bytes, this.#grace_bytes + CREDIT_BYTES_MAX);
    }
    this.#credit_bytes -= (elapsed_ms / 1000) * rate_bytes_per_s_min;
    const quiet_ms = now_ms - this.#moved_ms;
    this.#isStalled = quiet_ms >= stall_ms;
    if (rate_bytes_per_s_min === 0) {
      if (quiet_ms >= Math.max(stall_ms, QUIET_MS_MAX)) return 'cut';
    } else if (this.#credit_bytes <= 0) return 'cut';
    return quiet_ms >= quietAfter_ms(stall_ms) ? 'quiet' : 'ok';
  }

  #begin(now_ms: number, limits: TransferLimits): void {
    this.#running = true;
    this.#queued_bytes = undefined;
    this.#moved_bytes = this.#base_bytes;
    this.#moved_ms = now_ms;
    this.#grace_bytes = (limits.stall_ms / 1000) * limits.rate_bytes_per_s_min;
    this.#credit_bytes = this.#grace_bytes;
    this.#checked_ms = now_ms;
  }
}

/** The send queue is measured after this time without progress, and again at this interval. */
export const quietAfter_ms = (stall_ms: number): number => Math.min(1000, stall_ms / 4);
