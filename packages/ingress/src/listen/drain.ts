/**
 * Stops a listener without cutting off any client.
 *
 *   running --begin()--> draining --drained(signal)--> still answering health probes --close(signal)--> stopped
 *
 * Contract: from `begin` on, work is refused with 503 and answers in flight close their connection; the listener itself
 * stays open, so that health probes and refusals are still answered. `drained` waits until no request is in flight and
 * no handler runs, not even for a client that has left; `close` does too, then stops listening and closes idle
 * connections. No request in flight is reset before `signal` aborts.
 * Bound: `signal` bounds the wait; the remaining requests are then destroyed and counted.
 */
import { onAbort, RonError, sched } from '@ron/kernel';
import type { Parked } from '@ron/kernel';
import { cutConnection } from '../answer/cut-answer.ts';
import type { Listener } from './listener.ts';
import type { Gate } from '../table/readiness.ts';
import type { Responder } from '../answer/responder.ts';
import type { Sweeper } from '../connection/sweeper.ts';

export interface DrainInit {
  readonly listeners: readonly Listener[];
  readonly sweeper: Sweeper;
  readonly responder: Responder;
  readonly gate: Gate;
  /** Aborted when the drain begins. */
  readonly draining: AbortController;
  /** Handlers that still run after their connection closed. */
  readonly orphaned: () => number;
}

export class Drain {
  readonly #init: DrainInit;
  #begun = false;
  #closing: Promise<{ aborted: number }> | undefined;

  constructor(init: DrainInit) {
    this.#init = init;
  }

  get begun(): boolean {
    return this.#begun;
  }

  begin(): void {
    if (this.#begun) return;
    this.#begun = true;
    const { draining, gate, responder, sweeper } = this.#init;
    // [storage I-6] [kms I-6] [index I-6] [edge I-6] [interop I-6] Readiness goes first, then new work is refused.
    gate.close('shutting down');
    responder.draining = true;
    sweeper.beginDrain();
    draining.abort(new RonError('draining', 'the service is shutting down'));
  }

  /** Whether every request was answered and every handler ended before the signal aborted. Does not cut requests. */
  async drained(signal: AbortSignal): Promise<boolean> {
    this.begin();
    await this.#until(() => this.#inflight() === 0, signal);
    return this.#inflight() === 0;
  }

  /** Idempotent: later calls wait for the first. `aborted` is how many requests were cut when the signal fired. */
  close(signal: AbortSignal): Promise<{ aborted: number }> {
    this.#closing ??= this.#close(signal);
    return this.#closing;
  }

  async #close(signal: AbortSignal): Promise<{ aborted: number }> {
    const { listeners, sweeper } = this.#init;
    await this.drained(signal);
    // Clients that connected during a delay of the event loop wait in the kernel and would be reset: accept and refuse them first.
    await sched.pause('ingress-drain');
    for (const listener of listeners) listener.stop();
    await this.#until(() => sweeper.all.size === 0, signal);
    const aborted = this.#inflight();
    // [storage I-6] [kms I-6] [index I-6] [edge I-6] [interop I-6] Requests that outlive the drain are cut and counted.
    for (const connection of sweeper.all) cutConnection(connection.socket);
    sweeper.close();
    for (const listener of listeners) listener.dispose();
    return { aborted };
  }

  #inflight(): number {
    let count = this.#init.orphaned();
    for (const connection of this.#init.sweeper.all) count += connection.inflight.length;
    return count;
  }

  /** Checks after each sweep. Resolves, never rejects, when the signal aborts. */
  async #until(done: () => boolean, signal: AbortSignal): Promise<void> {
    while (!done() && !signal.aborted) {
      const parked: Parked<void> = sched.park('ingress-drain');
      const wake = (): void => parked.wake();
      using _ = onAbort(signal, wake);
      this.#init.sweeper.afterSweep(wake);
      await parked.promise;
    }
  }
}
