/**
 * Coalesces calls of one function: callers that arrive while a call is under way share its outcome. For probes of a disk
 * that may hang, where each call that hangs occupies a thread.
 *
 * Contract: at most one call is under way. A caller gets its outcome, or `LATE` after its own time limit; the call goes on
 * then, and the next caller joins it. Once the call has ended, the next caller starts another.
 * Bound: one call, one timer for each caller that waits. Cancellation: a caller leaves by its time limit.
 *
 *     const probe = new CoalescedCall(() => stat(dir));
 *     const stats = await probe.run(5000);
 */
import { touch } from '../sched.ts';
import { withTimeout, type LATE } from './with-timeout.ts';

export class CoalescedCall<T> {
  readonly #call: () => Promise<T>;
  #underWay: Promise<T> | undefined;

  constructor(call: () => Promise<T>) {
    this.#call = call;
  }

  run(wait_ms: number): Promise<T | typeof LATE> {
    touch(this);
    this.#underWay ??= this.#call().finally(() => {
      touch(this);
      this.#underWay = undefined;
    });
    return withTimeout(this.#underWay, wait_ms);
  }
}
