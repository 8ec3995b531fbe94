/**
 * Aborts a stalled transfer.
 *
 * Contract: `signal` aborts with `timeout` when `beat` was not called for `stall_ms`, and with the reason of the outer signal
 * when that aborts. Bound: one timer. Cancellation: dispose.
 */
import { RonError, sched, type Timer } from '@ron/kernel/core';

export class Stall implements Disposable {
  readonly signal: AbortSignal;
  readonly #controller = new AbortController();
  readonly #op: string;
  readonly #stall_ms: number;
  #timer: Timer | undefined;

  constructor(op: string, stall_ms: number, outer: AbortSignal) {
    this.#op = op;
    this.#stall_ms = stall_ms;
    this.signal = AbortSignal.any([outer, this.#controller.signal]);
    this.beat();
  }

  /** Progress was made; the next has to be made within `wait_ms`. */
  beat(wait_ms: number = this.#stall_ms): void {
    this.pause();
    this.#timer = sched.timer(wait_ms, () => this.#expire(wait_ms), `stall ${this.#op}`);
  }

  /** Suspends the timer: the other side is not waited for. */
  pause(): void {
    this.#timer?.cancel();
  }

  [Symbol.dispose](): void {
    this.pause();
  }

  #expire(wait_ms: number): void {
    const message = `no progress for ${wait_ms} ms`;
    this.#controller.abort(new RonError('timeout', message, { op: this.#op }));
  }
}
