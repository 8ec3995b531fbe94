/**
 * Receivers that wait for a message of a topic (long polls).
 *
 * Contract: a message that becomes visible is given to the receiver of its topic that has waited longest, in the synchronous
 * step in which it becomes visible (`serve`). No message becomes visible between the check and the wait, so no wake-up is
 * lost. A receiver leaves in the step that decides its outcome: messages, the end of its time, a drain, or its signal;
 * nothing is given to a receiver that left. While a receiver of a topic waits, that topic has no visible message.
 * Bound: `capacity` receivers over all topics. Overflow: `busy`, at once.
 * Cancellation: the signal of a receiver rejects its wait with the reason; `draining` and `close` end it with no messages.
 */
import { onAbort, RonError, sched, touch, type Parked, type Timer } from '@ron/kernel';

const RETRY_AFTER_MS = 1000;

/** `take` leases visible messages for a receiver; undefined if there are none. */
export interface ReceiversInit<W, T> {
  readonly capacity: number;
  readonly take: (topic: string, wanted: W) => T | undefined;
}

export interface WaitInit {
  readonly wait_ms: number;
  readonly signal: AbortSignal;
  readonly draining: AbortSignal;
}

interface Waiting<W, T> {
  readonly wanted: W;
  readonly parked: Parked<T | undefined>;
  timer: Timer | undefined;
  registrations: Disposable[];
}

export class Receivers<W, T> {
  readonly #init: ReceiversInit<W, T>;
  /** In the order of arrival; a topic without receivers has no entry. */
  readonly #byTopic = new Map<string, Set<Waiting<W, T>>>();
  #depth = 0;
  #isClosed = false;
  busy_total = 0;

  constructor(init: ReceiversInit<W, T>) {
    this.#init = init;
  }

  /** Receivers that wait. */
  get depth(): number {
    touch(this);
    return this.#depth;
  }

  /** Leases messages now or waits for them; undefined when the time is over or a drain has begun. */
  wait(topic: string, wanted: W, { wait_ms, signal, draining }: WaitInit): Promise<T | undefined> {
    touch(this);
    if (signal.aborted) return Promise.reject(signal.reason);
    const taken = this.#init.take(topic, wanted);
    if (taken !== undefined || wait_ms <= 0) return Promise.resolve(taken);
    if (draining.aborted || this.#isClosed) return Promise.resolve(undefined);
    // [mailbox I-11]
    if (this.#depth >= this.#init.capacity) return Promise.reject(this.#busy());
    return this.#park(topic, wanted, { wait_ms, signal, draining });
  }

  /** Gives visible messages of a topic to its receivers, the longest waiting first. Call it in each step that makes one visible. */
  serve(topic: string): void {
    touch(this);
    const waiting = this.#byTopic.get(topic);
    if (waiting === undefined) return;
    for (const receiver of waiting) {
      const taken = this.#init.take(topic, receiver.wanted);
      if (taken === undefined) return;
      // [mailbox I-12] It leaves in the step in which it gets messages, so neither its signal nor its timer decides again.
      this.#leave(topic, receiver).wake(taken);
    }
  }

  /** Ends all waits without messages. Later ones do not wait. Idempotent. */
  close(): void {
    touch(this);
    this.#isClosed = true;
    for (const [topic, waiting] of this.#byTopic)
      for (const receiver of waiting) this.#leave(topic, receiver).wake(undefined);
  }

  #park(topic: string, wanted: W, { wait_ms, signal, draining }: WaitInit): Promise<T | undefined> {
    const parked = sched.park<T | undefined>('receivers.wait');
    const receiver: Waiting<W, T> = { wanted, parked, timer: undefined, registrations: [] };
    const waiting = this.#byTopic.get(topic) ?? new Set();
    this.#byTopic.set(topic, waiting.add(receiver));
    this.#depth += 1;
    const empty = (): void => this.#leave(topic, receiver).wake(undefined);
    receiver.timer = sched.timer(wait_ms, empty, 'receivers.wait');
    receiver.registrations = [
      onAbort(signal, (reason) => this.#leave(topic, receiver).fail(reason)),
      onAbort(draining, empty),
    ];
    return parked.promise;
  }

  #leave(topic: string, receiver: Waiting<W, T>): Parked<T | undefined> {
    touch(this);
    const waiting = this.#byTopic.get(topic);
    if (waiting?.delete(receiver) === true) this.#depth -= 1;
    if (waiting?.size === 0) this.#byTopic.delete(topic);
    receiver.timer?.cancel();
    for (const registration of receiver.registrations) registration[Symbol.dispose]();
    return receiver.parked;
  }

  #busy(): RonError {
    this.busy_total += 1;
    return new RonError('busy', `${this.#init.capacity} receivers wait already`, { retry_after_ms: RETRY_AFTER_MS });
  }
}
