/**
 * A bounded queue from many senders to one or more receivers.
 *
 * Contract: first in, first out. `trySend` never waits. An accepted item is received exactly once: cancelling a `recv`
 * never loses one, because an item handed to a waiting receiver belongs to it at once, even if its signal aborts before
 * its continuation runs. Receivers and waiting senders are served in the order in which they came; free room goes to the
 * first waiting sender, so no sender overtakes another.
 * Bound: `capacity` items in the queue, besides those already handed to receivers that wake up. The ring grows to
 * `capacity` as it is needed and forgets an item when it is taken.
 * Overflow: the sender chooses. `trySend` refuses, `sendWithin` waits a while and then refuses, `pushDropOldest` makes
 * its own room at the cost of the oldest item that is not protected (it takes no waiting sender's turn).
 * Cancellation: every wait rejects with the signal's reason; then nothing was taken and nothing was queued. A signal
 * that is aborted already takes nothing. `close` refuses new items, answers waiting senders with 'closed' and lets
 * receivers drain; it also removes every abort listener, so a signal may outlive the channel.
 *
 * Two invariants hold between any two calls: receivers wait only while the ring is empty, senders only while it is full.
 * An item must not be `undefined` (that means closed) nor a promise (awaiting it would unwrap it).
 */
import { assert } from '../errors.ts';
import { touch } from '../sched.ts';
import { WaitList } from '../sync/wait-list.ts';

export type SendResult = 'ok' | 'full' | 'closed';

export interface Pushed<T> {
  readonly result: SendResult;
  /** The item that made room, when one had to. */
  readonly dropped: T | undefined;
}

/** The ring starts small: most channels never come near their capacity. */
const RING_START = 16;

// The answers that need no wait, made once.
const SENT = Promise.resolve<SendResult>('ok');
const REFUSED = Promise.resolve<SendResult>('full');
const CLOSED = Promise.resolve<SendResult>('closed');
const PUSHED: Pushed<never> = Object.freeze({ result: 'ok', dropped: undefined });
const PUSH_REFUSED: Pushed<never> = Object.freeze({ result: 'full', dropped: undefined });
const PUSH_CLOSED: Pushed<never> = Object.freeze({ result: 'closed', dropped: undefined });

export class Mpsc<T> implements AsyncDisposable {
  readonly name: string;
  readonly capacity: number;
  #ring: (T | undefined)[];
  #head = 0;
  #depth = 0;
  #closed = false;
  #dropped_total = 0;
  #rejected_total = 0;
  /** Each waits with the array it wants filled, or with undefined when it wants one bare item. */
  readonly #receivers: WaitList<T | T[] | undefined, T[] | undefined>;
  /** Each waits with its item. */
  readonly #senders: WaitList<SendResult, T>;

  constructor(name: string, capacity: number) {
    assert(Number.isSafeInteger(capacity) && capacity >= 1, `channel ${name}: capacity is a whole number, at least 1`);
    this.name = name;
    this.capacity = capacity;
    this.#ring = emptyRing(Math.min(capacity, RING_START));
    this.#receivers = new WaitList({ owner: this, label: `${name}.recv` });
    this.#senders = new WaitList({ owner: this, label: `${name}.send`, expired: (): SendResult => this.#reject() });
  }

  /** Items in the queue. Those handed to receivers that have yet to wake up are no longer in it. */
  get depth(): number {
    touch(this);
    return this.#depth;
  }

  /** Items dropped by `pushDropOldest` to make room. */
  get dropped_total(): number {
    touch(this);
    return this.#dropped_total;
  }

  /** Sends of any kind that ended in 'full'. */
  get rejected_total(): number {
    touch(this);
    return this.#rejected_total;
  }

  get isClosed(): boolean {
    touch(this);
    return this.#closed;
  }

  /** Queues the item if there is room now. */
  trySend(item: T): SendResult {
    touch(this);
    if (this.#closed) return 'closed';
    return this.#offer(item) ? 'ok' : this.#reject();
  }

  /** Queues the item, waiting up to `wait_ms` for room. Rejects with the signal's reason; then it was not queued. */
  sendWithin(item: T, wait_ms: number, signal: AbortSignal): Promise<SendResult> {
    touch(this);
    if (signal.aborted) return Promise.reject(signal.reason);
    if (this.#closed) return CLOSED;
    if (this.#offer(item)) return SENT;
    if (wait_ms > 0) return this.#senders.park(signal, item, wait_ms);
    this.#reject();
    return REFUSED;
  }

  /**
   * Queues the item at once. If the queue is full, the oldest item that `keep` does not protect goes; if all are
   * protected, the new item is refused with 'full'. Costs a call of `keep` for each protected item before the victim.
   */
  pushDropOldest(item: T, keep?: (item: T) => boolean): Pushed<T> {
    touch(this);
    if (this.#closed) return PUSH_CLOSED;
    if (this.#offer(item)) return PUSHED;
    const at = keep === undefined ? 0 : this.#oldestUnprotected(keep);
    if (at === -1) {
      this.#reject();
      return PUSH_REFUSED;
    }
    const dropped = this.#removeAt(at);
    this.#dropped_total += 1;
    this.#append(item);
    return { result: 'ok', dropped };
  }

  /** The next item; at once and without a promise when there is one. `undefined`: closed and drained. */
  recv(signal: AbortSignal): T | undefined | Promise<T | undefined> {
    touch(this);
    if (signal.aborted) return Promise.reject(signal.reason);
    if (this.#depth > 0) return this.#take();
    if (this.#closed) return undefined;
    return this.#receivers.park(signal, undefined) as Promise<T | undefined>;
  }

  /**
   * The next items, at most `max` and at least one; none only when closed and drained. `into` is overwritten and
   * returned, so that a loop needs one array.
   */
  recvMany(max: number, signal: AbortSignal, into: T[] = []): T[] | Promise<T[]> {
    assert(max >= 1, 'recvMany asks for at least one item');
    touch(this);
    if (signal.aborted) return Promise.reject(signal.reason);
    let count = 0;
    while (count < max && this.#depth > 0) into[count++] = this.#take();
    // Cut once at the end: emptying first would free the array's memory each time.
    into.length = count;
    if (count > 0 || this.#closed) return into;
    return this.#receivers.park(signal, into) as Promise<T[]>;
  }

  /** Idempotent. Queued items can still be received. */
  close(): void {
    touch(this);
    if (this.#closed) return;
    this.#closed = true;
    while (this.#receivers.size > 0) this.#receivers.wakeFirst(this.#receivers.peek());
    while (this.#senders.size > 0) this.#senders.wakeFirst('closed');
    this.#receivers.close();
    this.#senders.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.close();
    return Promise.resolve();
  }

  /** Hands the item to the first waiting receiver or appends it; false when there is no room. */
  #offer(item: T): boolean {
    assert(item !== undefined, 'undefined cannot be sent, it means closed');
    if (this.#receivers.size > 0) {
      this.#handOver(item);
      return true;
    }
    // [storage I-3] [kms I-3] [index I-3] [edge I-3] [interop I-3] A full channel takes nothing more; the sender chooses the policy.
    if (this.#depth === this.capacity) return false;
    this.#append(item);
    return true;
  }

  #handOver(item: T): void {
    const into = this.#receivers.peek();
    if (into === undefined) {
      this.#receivers.wakeFirst(item);
    } else {
      into[0] = item;
      this.#receivers.wakeFirst(into);
    }
  }

  #reject(): 'full' {
    this.#rejected_total += 1;
    return 'full';
  }

  #append(item: T): void {
    if (this.#depth === this.#ring.length) this.#grow();
    let at = this.#head + this.#depth;
    if (at >= this.#ring.length) at -= this.#ring.length;
    this.#ring[at] = item;
    this.#depth += 1;
  }

  /** Takes the oldest item; the room goes to the first waiting sender. */
  #take(): T {
    const item = this.#shift();
    if (this.#senders.size > 0) {
      this.#append(this.#senders.peek());
      this.#senders.wakeFirst('ok');
    }
    return item;
  }

  #shift(): T {
    const item = this.#ring[this.#head] as T;
    this.#ring[this.#head] = undefined;
    this.#head = this.#head + 1 === this.#ring.length ? 0 : this.#head + 1;
    this.#depth -= 1;
    return item;
  }

  /** How many items lie before the oldest one that may go; -1 if none may. */
  #oldestUnprotected(keep: (item: T) => boolean): number {
    const head = this.#head;
    for (let at = 0; at < this.capacity; at += 1) {
      if (keep(this.#ring[(head + at) % this.capacity] as T)) continue;
      assert(head === this.#head && this.#depth === this.capacity, '`keep` must not use the channel');
      return at;
    }
    return -1;
  }

  /** Takes out the item that has `at` items before it, and moves those up by one. The room is left to the caller. */
  #removeAt(at: number): T {
    const ring = this.#ring;
    const victim = ring[(this.#head + at) % ring.length] as T;
    for (let to = at; to > 0; to -= 1) {
      ring[(this.#head + to) % ring.length] = ring[(this.#head + to - 1) % ring.length];
    }
    this.#shift();
    return victim;
  }

  #grow(): void {
    const ring = emptyRing<T>(Math.min(this.capacity, this.#ring.length * 2));
    for (let at = 0; at < this.#depth; at += 1) ring[at] = this.#ring[(this.#head + at) % this.#ring.length];
    this.#ring = ring;
    this.#head = 0;
  }
}

function emptyRing<T>(slots: number): (T | undefined)[] {
  return Array.from<T | undefined>({ length: slots }).fill(undefined);
}
