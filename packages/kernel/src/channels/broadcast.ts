/**
 * Events from one publisher to many subscribers, each of which may be slow.
 *
 * Contract: `publish` never waits and never fails because of a subscriber. Each subscriber sees the events published
 * since it subscribed, in order, but for those it lost by lagging, and every lost one is counted.
 * Bound: `capacity` events for each subscriber, `subscribers_max` subscribers.
 * Overflow: a subscriber that is full loses its oldest event. `onLag` is called at most once in 5 s for each subscriber,
 * with the number of events lost since its last call. Beyond `subscribers_max`, `subscribe` fails with `busy`.
 * Cancellation: as in Mpsc. After a subscription or the broadcast is closed, `recv` drains the queued events and then gives
 * `undefined`. Publishing after the close does nothing.
 */
import { assert, RonError } from '../errors.ts';
import { Mpsc } from './mpsc.ts';
import { sched, touch } from '../sched.ts';

const SUBSCRIBERS_MAX = 64;
const LAG_REPORT_INTERVAL_MS = 5_000;

// Methods that only the broadcast may call: the symbols are not exported.
const PUSH = Symbol('push');
const LAG_DUE = Symbol('lagDue');

export interface BroadcastInit {
  /** Called when a subscriber lost `lagged` events since the last call. For a warning in the log. */
  onLag?: (lagged: number, subscriber: string) => void;
  /** Subscribers at one time. Default 64. */
  subscribers_max?: number;
}

export class Broadcast<T> implements AsyncDisposable {
  readonly name: string;
  readonly capacity: number;
  readonly #onLag: ((lagged: number, subscriber: string) => void) | undefined;
  readonly #subscribers_max: number;
  readonly #subscriptions = new Set<Subscription<T>>();
  #lagged_total = 0;
  #closed = false;

  constructor(name: string, capacity: number, init: BroadcastInit = {}) {
    this.name = name;
    this.capacity = capacity;
    this.#onLag = init.onLag;
    this.#subscribers_max = init.subscribers_max ?? SUBSCRIBERS_MAX;
    assert(
      Number.isSafeInteger(capacity) && capacity >= 1,
      `broadcast ${name}: capacity is a whole number, at least 1`,
    );
  }

  /** Events lost by all subscribers together, also by those that have left. */
  get lagged_total(): number {
    touch(this);
    return this.#lagged_total;
  }

  get subscribers(): number {
    touch(this);
    return this.#subscriptions.size;
  }

  publish(event: T): void {
    touch(this);
    let lagging = false;
    for (const subscription of this.#subscriptions) {
      if (!subscription[PUSH](event)) continue;
      this.#lagged_total += 1;
      lagging = true;
    }
    // Only after every subscriber has the event: a callback that throws must not keep it from one of them.
    if (lagging && this.#onLag !== undefined) this.#reportLag(this.#onLag);
  }

  subscribe(name: string): Subscription<T> {
    touch(this);
    if (this.#closed) throw new RonError('closed', `broadcast ${this.name} is closed`);
    if (this.#subscriptions.size >= this.#subscribers_max) {
      throw new RonError('busy', `broadcast ${this.name} has ${this.#subscribers_max} subscribers, as many as it may`);
    }
    // [storage I-3] [kms I-3] [index I-3] [edge I-3] [interop I-3] Each subscriber has a bounded queue and loses its oldest event, counted.
    const queue = new Mpsc<T>(`${this.name}.${name}`, this.capacity);
    const subscription: Subscription<T> = new Subscription(name, queue, () => {
      touch(this);
      this.#subscriptions.delete(subscription);
    });
    this.#subscriptions.add(subscription);
    return subscription;
  }

  /** Idempotent. */
  close(): void {
    touch(this);
    this.#closed = true;
    for (const subscription of this.#subscriptions) subscription.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.close();
    return Promise.resolve();
  }

  #reportLag(onLag: (lagged: number, subscriber: string) => void): void {
    const now_ms = sched.now_ms();
    for (const subscription of this.#subscriptions) {
      const lagged = subscription[LAG_DUE](now_ms);
      if (lagged > 0) onLag(lagged, subscription.name);
    }
  }
}

export class Subscription<T> implements AsyncDisposable {
  readonly name: string;
  readonly #queue: Mpsc<T>;
  readonly #leave: () => void;
  #reported_total = 0;
  #reported_ms = Number.NEGATIVE_INFINITY;

  constructor(name: string, queue: Mpsc<T>, leave: () => void) {
    this.name = name;
    this.#queue = queue;
    this.#leave = leave;
  }

  /** Events this subscriber lost. */
  get lagged_total(): number {
    return this.#queue.dropped_total;
  }

  get depth(): number {
    return this.#queue.depth;
  }

  /** The next event; at once and without a promise when there is one. `undefined`: closed and drained. */
  recv(signal: AbortSignal): T | undefined | Promise<T | undefined> {
    return this.#queue.recv(signal);
  }

  /** Idempotent. Queued events can still be received. */
  close(): void {
    this.#leave();
    this.#queue.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.close();
    return Promise.resolve();
  }

  /** Queues the event; true if the oldest one was lost for it. */
  [PUSH](event: T): boolean {
    return this.#queue.pushDropOldest(event).dropped !== undefined;
  }

  /** How many lost events a report is due for, and counts them as reported. 0: none, or the last report is too fresh. */
  [LAG_DUE](now_ms: number): number {
    const lagged = this.#queue.dropped_total - this.#reported_total;
    if (lagged === 0 || now_ms - this.#reported_ms < LAG_REPORT_INTERVAL_MS) return 0;
    this.#reported_total += lagged;
    this.#reported_ms = now_ms;
    return lagged;
  }
}
