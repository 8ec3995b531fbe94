/**
 * Ends a transfer that stands still.
 *
 * Promise: `signal` aborts with `timeout` when `beat` was not called for `stall_ms`, and with the outer signal's reason
 * when that aborts. Bound: one timer. Cancellation: disposing it ends the watch.
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

  /** Something moved; the next thing has to move within `wait_ms`. */
  beat(wait_ms: number = this.#stall_ms): void {
    this.pause();
    this.#timer = sched.timer(wait_ms, () => this.#expire(wait_ms), `stall ${this.#op}`);
  }

  /** The other side is not to blame for the time that now passes. */
  pause(): void {
    this.#timer?.cancel();
  }

  [Symbol.dispose](): void {
    this.pause();
  }

  #expire(wait_ms: number): void {
    const message = `nothing moved for ${wait_ms} ms`;
    this.#controller.abort(new RonError('timeout', message, { op: this.#op }));
  }
}
