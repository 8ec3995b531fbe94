import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import { setImmediate as settle } from 'node:timers/promises';
import fc from 'fast-check';
import { Mpsc } from './mpsc.ts';
import { installSched, realSched } from '../sched.ts';

type Call =
  | { do: 'trySend' | 'push' | 'pushKeepingOdd' | 'sendWithin' }
  | { do: 'recv' | 'close' | 'settle' }
  | { do: 'recvMany'; max: number }
  | { do: 'abort' | 'expire'; nth: number };

/** The same promises in the plainest code, with every outcome as text. An item is the number of the call that sent it. */
class Reference {
  queue: number[] = [];
  receivers: { id: number; many: boolean }[] = [];
  senders: { id: number; item: number }[] = [];
  closed = false;
  outcomes = new Map<number, string>();
  readonly capacity: number;
  constructor(capacity: number) {
    this.capacity = capacity;
  }

  offer(item: number): boolean {
    const receiver = this.receivers.shift();
    if (receiver !== undefined) this.outcomes.set(receiver.id, receiver.many ? `[${item}]` : `${item}`);
    else if (this.queue.length < this.capacity) this.queue.push(item);
    else return false;
    return true;
  }

  take(): number | undefined {
    const item = this.queue.shift();
    const sender = item === undefined ? undefined : this.senders.shift();
    if (sender !== undefined) {
      this.queue.push(sender.item);
      this.outcomes.set(sender.id, 'ok');
    }
    return item;
  }

  send(id: number, full: () => string | undefined): void {
    const outcome = this.closed ? 'closed' : this.offer(id) ? 'ok' : full();
    if (outcome !== undefined) this.outcomes.set(id, outcome);
  }

  push(id: number, keep: (item: number) => boolean): string {
    const at = this.queue.findIndex((item) => !keep(item));
    if (at === -1) return 'full';
    const [dropped] = this.queue.splice(at, 1);
    this.queue.push(id);
    return `ok dropped ${dropped}`;
  }

  receive(id: number, max: number | undefined): void {
    const items: number[] = [];
    while (items.length < (max ?? 1) && this.queue.length > 0) items.push(this.take() as number);
    if (items.length === 0 && !this.closed) this.receivers.push({ id, many: max !== undefined });
    else this.outcomes.set(id, max === undefined ? `${items[0]}` : `[${items.join()}]`);
  }

  close(): void {
    this.closed = true;
    for (const { id, many } of this.receivers.splice(0)) this.outcomes.set(id, many ? '[]' : 'undefined');
    for (const { id } of this.senders.splice(0)) this.outcomes.set(id, 'closed');
  }

  leave(id: number, outcome: string): void {
    this.receivers = this.receivers.filter((waiter) => waiter.id !== id);
    this.senders = this.senders.filter((waiter) => waiter.id !== id);
    this.outcomes.set(id, outcome);
  }
}

const calls = fc.array(
  fc.oneof(
    { weight: 6, arbitrary: fc.record({ do: fc.constantFrom('trySend' as const, 'sendWithin' as const) }) },
    { weight: 2, arbitrary: fc.record({ do: fc.constantFrom('push' as const, 'pushKeepingOdd' as const) }) },
    { weight: 5, arbitrary: fc.record({ do: fc.constantFrom('recv' as const) }) },
    {
      weight: 3,
      arbitrary: fc.record({ do: fc.constantFrom('recvMany' as const), max: fc.integer({ min: 1, max: 4 }) }),
    },
    { weight: 4, arbitrary: fc.record({ do: fc.constantFrom('abort' as const, 'expire' as const), nth: fc.nat(3) }) },
    { weight: 1, arbitrary: fc.constantFrom<Call>({ do: 'close' }, { do: 'settle' }) },
  ),
  { minLength: 1, maxLength: 60 },
);

const isOdd = (item: number): boolean => item % 2 === 1;

/** A channel and the reference, side by side: every call goes to both. */
class Twins {
  readonly #channel: Mpsc<number>;
  readonly #reference: Reference;
  readonly #outcomes = new Map<number, string>();
  /** Calls with a signal of their own, which can be aborted. The others share one that never aborts. */
  readonly #controllers = new Map<number, AbortController>();
  readonly #common = new AbortController();
  readonly #shared: boolean;
  /** Timers fire when the sequence says so. */
  readonly #timers: ReadonlyMap<number, () => void>;

  constructor(capacity: number, shared: boolean, timers: ReadonlyMap<number, () => void>) {
    this.#channel = new Mpsc('jobs', capacity);
    this.#reference = new Reference(capacity);
    this.#shared = shared;
    this.#timers = timers;
  }

  call(id: number, call: Call): void {
    const [channel, reference] = [this.#channel, this.#reference];
    switch (call.do) {
      case 'trySend':
        this.#record(id, channel.trySend(id));
        return reference.send(id, () => 'full');
      case 'sendWithin':
        this.#record(id, channel.sendWithin(id, 5, this.#signalOf(id)));
        return reference.send(id, () => void reference.senders.push({ id, item: id }));
      case 'push':
      case 'pushKeepingOdd':
        return this.#push(id, call.do === 'push' ? undefined : isOdd);
      case 'recv':
        this.#record(id, channel.recv(this.#signalOf(id)));
        return reference.receive(id, undefined);
      case 'recvMany':
        this.#record(id, channel.recvMany(call.max, this.#signalOf(id)));
        return reference.receive(id, call.max);
      case 'abort':
        return this.#abort(call.nth);
      case 'expire':
        return this.#expire(call.nth);
      case 'close':
        channel.close();
        return reference.close();
      case 'settle':
    }
  }

  checkNow(): void {
    assert.equal(this.#channel.depth, this.#reference.queue.length);
    const waiting = this.#reference.senders.map((sender) => sender.id);
    assert.deepEqual([...this.#timers.keys()], waiting, 'a timer for each waiting sender and no other');
  }

  async checkOutcomes(): Promise<void> {
    await settle();
    const sorted = (outcomes: Map<number, string>): unknown => [...outcomes].toSorted(([a], [b]) => a - b);
    assert.deepEqual(sorted(this.#outcomes), sorted(this.#reference.outcomes));
  }

  checkEnd(): void {
    const outcomes = [...this.#reference.outcomes.values()];
    assert.equal(this.#channel.rejected_total, outcomes.filter((outcome) => outcome === 'full').length);
    assert.equal(this.#channel.dropped_total, outcomes.filter((outcome) => outcome.includes('dropped')).length);
    this.#channel.close();
    for (const { signal } of [this.#common, ...this.#controllers.values()]) {
      assert.equal(getEventListeners(signal, 'abort').length, 0);
    }
  }

  #push(id: number, keep: ((item: number) => boolean) | undefined): void {
    const { result, dropped } = this.#channel.pushDropOldest(id, keep);
    this.#record(id, dropped === undefined ? result : `${result} dropped ${dropped}`);
    this.#reference.send(id, () => this.#reference.push(id, keep ?? (() => false)));
  }

  #abort(nth: number): void {
    const { receivers, senders } = this.#reference;
    const waiter = [...receivers, ...senders].filter(({ id }) => this.#controllers.has(id))[nth];
    if (waiter === undefined) return;
    this.#controllers.get(waiter.id)?.abort(`gone ${waiter.id}`);
    this.#reference.leave(waiter.id, `rejected gone ${waiter.id}`);
  }

  #expire(nth: number): void {
    const waiter = this.#reference.senders[nth];
    if (waiter === undefined) return;
    this.#timers.get(waiter.id)?.();
    this.#reference.leave(waiter.id, 'full');
  }

  #signalOf(id: number): AbortSignal {
    if (this.#shared && id % 2 === 0) return this.#common.signal;
    const controller = new AbortController();
    this.#controllers.set(id, controller);
    return controller.signal;
  }

  #record(id: number, answer: unknown): void {
    Promise.resolve(answer).then(
      (value) => this.#outcomes.set(id, Array.isArray(value) ? `[${value.join()}]` : String(value)),
      (error: unknown) => this.#outcomes.set(id, `rejected ${String(error)}`),
    );
  }
}

test('any sequence of calls gives the results of the reference', async (t) => {
  const timers = new Map<number, () => void>();
  let current = 0;
  const previous = installSched({
    ...realSched,
    timer(_delay_ms, fire) {
      const id = current;
      timers.set(id, fire);
      return { cancel: () => void timers.delete(id) };
    },
  });
  t.after(() => installSched(previous));
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 1, max: 5 }), calls, fc.boolean(), async (capacity, sequence, shared) => {
      timers.clear();
      const twins = new Twins(capacity, shared, timers);
      for (const [id, call] of sequence.entries()) {
        current = id;
        twins.call(id, call);
        twins.checkNow();
        if (call.do === 'settle') await twins.checkOutcomes();
      }
      await twins.checkOutcomes();
      twins.checkEnd();
    }),
    { numRuns: 1_000 },
  );
});
