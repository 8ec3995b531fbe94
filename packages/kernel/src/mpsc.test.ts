import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import { setImmediate as settle } from 'node:timers/promises';
import fc from 'fast-check';
import { Mpsc } from './mpsc.ts';
import { installSched, realSched } from './sched.ts';

const forever = new AbortController().signal;

/** Whether a promise has settled by now; without waiting for it. */
async function isPending(promise: unknown): Promise<boolean> {
  const pending = Symbol('pending');
  await settle();
  return (await Promise.race([promise, Promise.resolve(pending)]).catch(() => undefined)) === pending;
}

test('items come out in the order they went in, also around the end of a growing ring', () => {
  const channel = new Mpsc<number>('jobs', 40);
  const received: unknown[] = [];
  let next = 0;
  for (const [sends, receives] of [
    [10, 7],
    [35, 30],
    [32, 40],
  ] as const) {
    for (let n = 0; n < sends; n += 1) assert.equal(channel.trySend(next++), 'ok');
    for (let n = 0; n < receives; n += 1) received.push(channel.recv(forever));
  }
  assert.deepEqual(
    received,
    Array.from({ length: next }, (_, n) => n),
  );
  assert.equal(channel.depth, 0);
});

test('capacity must be a whole number of at least 1', () => {
  for (const capacity of [0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY]) {
    assert.throws(() => new Mpsc('jobs', capacity), /capacity/);
  }
});

test('undefined cannot be sent: it would look like the end', () => {
  const channel = new Mpsc<undefined>('jobs', 1);
  assert.throws(() => channel.trySend(undefined), /undefined/);
  assert.equal(channel.depth, 0);
});

test('trySend refuses at capacity and counts it', () => {
  const channel = new Mpsc<number>('jobs', 2);
  assert.equal(channel.trySend(1), 'ok');
  assert.equal(channel.trySend(2), 'ok');
  assert.equal(channel.trySend(3), 'full');
  assert.equal(channel.depth, 2);
  assert.equal(channel.rejected_total, 1);
  assert.deepEqual(channel.recvMany(9, forever), [1, 2]);
});

test('recv answers without a promise when an item is there', () => {
  const channel = new Mpsc<number>('jobs', 2);
  channel.trySend(1);
  assert.equal(channel.recv(forever), 1);
  assert.ok(channel.recv(forever) instanceof Promise);
});

test('close lets receivers drain and then gives undefined, and refuses every kind of send', async () => {
  const channel = new Mpsc<number>('jobs', 4);
  for (const item of [1, 2, 3]) channel.trySend(item);
  channel.close();
  channel.close();
  assert.equal(channel.isClosed, true);
  assert.equal(channel.trySend(4), 'closed');
  assert.deepEqual(channel.pushDropOldest(4), { result: 'closed', dropped: undefined });
  assert.equal(await channel.sendWithin(4, 1, forever), 'closed');
  assert.equal(channel.rejected_total, 0);
  assert.equal(channel.recv(forever), 1);
  assert.deepEqual(channel.recvMany(5, forever), [2, 3]);
  assert.equal(channel.recv(forever), undefined);
  assert.deepEqual(channel.recvMany(5, forever), []);
});

test('close sends waiting receivers and senders away', async () => {
  const empty = new Mpsc<number>('jobs', 1);
  const [one, many] = [empty.recv(forever), empty.recvMany(3, forever)];
  empty.close();
  assert.deepEqual([await one, await many], [undefined, []]);

  const full = new Mpsc<number>('jobs', 1);
  full.trySend(1);
  const sending = full.sendWithin(2, 60_000, forever);
  full.close();
  assert.equal(await sending, 'closed');
  assert.equal(full.recv(forever), 1);
  assert.equal(full.recv(forever), undefined, 'an item that was refused is not in the queue');
});

test('`await using` closes it', async () => {
  let waiting: unknown;
  {
    await using channel = new Mpsc<number>('jobs', 1);
    waiting = channel.recv(forever);
  }
  assert.equal(await waiting, undefined);
});

test('waiting receivers are served in the order they came, each with its own item', async () => {
  const channel = new Mpsc<number>('jobs', 4);
  const [first, second, many] = [channel.recv(forever), channel.recv(forever), channel.recvMany(2, forever)];
  for (const item of [1, 2, 3, 4]) channel.trySend(item);
  assert.equal(channel.depth, 1);
  assert.deepEqual([await many, await second, await first], [[3], 2, 1]);
  assert.equal(channel.recv(forever), 4);
});

test('an item that was handed over is delivered even if the signal aborts before the receiver runs', async () => {
  const channel = new Mpsc<number>('jobs', 1);
  const controller = new AbortController();
  const one = channel.recv(controller.signal);
  const many = channel.recvMany(2, controller.signal);
  const late = channel.recv(controller.signal);
  channel.trySend(1);
  channel.trySend(2);
  controller.abort(new Error('gone'));
  assert.equal(await one, 1);
  assert.deepEqual(await many, [2]);
  await assert.rejects(Promise.resolve(late), /gone/);
});

test('a cancelled recv takes nothing; the next one gets the item', async () => {
  const channel = new Mpsc<number>('jobs', 1);
  const controller = new AbortController();
  const cancelled = channel.recv(controller.signal);
  const patient = channel.recv(forever);
  controller.abort(new Error('gone'));
  channel.trySend(1);
  await assert.rejects(Promise.resolve(cancelled), /gone/);
  assert.equal(await patient, 1);
});

test('an aborted signal takes nothing, waits for nothing and sends nothing', async () => {
  const channel = new Mpsc<number>('jobs', 2);
  channel.trySend(1);
  const aborted = AbortSignal.abort(new Error('gone'));
  await assert.rejects(Promise.resolve(channel.recv(aborted)), /gone/);
  await assert.rejects(Promise.resolve(channel.recvMany(2, aborted)), /gone/);
  await assert.rejects(channel.sendWithin(2, 1, aborted), /gone/);
  assert.deepEqual(channel.recvMany(9, forever), [1]);
});

test('recvMany fills the given array, leaves nothing of the last batch in it, and takes what waiting senders bring', async () => {
  const channel = new Mpsc<number>('jobs', 2);
  const into = [9, 9, 9, 9, 9];
  channel.trySend(1);
  channel.trySend(2);
  const sending = channel.sendWithin(3, 60_000, forever);
  assert.equal(channel.recvMany(2, forever, into), into);
  assert.deepEqual(into, [1, 2]);
  assert.equal(await sending, 'ok');
  assert.equal(channel.recvMany(2, forever, into), into);
  assert.deepEqual(into, [3]);
  const waiting = channel.recvMany(2, forever, into);
  assert.deepEqual(into, []);
  channel.trySend(4);
  assert.equal(await waiting, into);
  assert.deepEqual(into, [4]);
  assert.throws(() => channel.recvMany(0, forever), /at least one/);
});

test('waiting senders are served in the order they came and nobody overtakes them', async () => {
  const channel = new Mpsc<number>('jobs', 1);
  channel.trySend(1);
  const second = channel.sendWithin(2, 60_000, forever);
  const third = channel.sendWithin(3, 60_000, forever);
  assert.equal(channel.recv(forever), 1);
  assert.equal(channel.trySend(9), 'full', 'the room went to the sender that waited');
  assert.equal(await second, 'ok');
  assert.equal(await isPending(third), true);
  assert.equal(channel.recv(forever), 2);
  assert.equal(await third, 'ok');
  assert.equal(channel.recv(forever), 3);
});

test('sendWithin gives up with full after its time and then the item is not queued', async () => {
  const channel = new Mpsc<number>('jobs', 1);
  channel.trySend(1);
  assert.equal(await channel.sendWithin(2, 0, forever), 'full');
  const kept = setInterval(() => {}, 1_000); // the channel's own timer does not keep the process alive
  assert.equal(await channel.sendWithin(3, 2, forever), 'full');
  clearInterval(kept);
  assert.equal(channel.rejected_total, 2);
  assert.equal(channel.recv(forever), 1);
  assert.equal(channel.depth, 0);
});

test('an aborted sendWithin rejects with the reason and its item is not queued', async () => {
  const channel = new Mpsc<number>('jobs', 1);
  channel.trySend(1);
  const controller = new AbortController();
  const sending = channel.sendWithin(2, 60_000, controller.signal);
  const patient = channel.sendWithin(3, 60_000, forever);
  controller.abort(new Error('gone'));
  await assert.rejects(sending, /gone/);
  assert.equal(channel.recv(forever), 1);
  assert.equal(await patient, 'ok');
  assert.equal(channel.recv(forever), 3);
  assert.equal(channel.rejected_total, 0);
});

test('a sender that was let in stays in, whatever its signal does before it runs', async () => {
  const channel = new Mpsc<number>('jobs', 1);
  channel.trySend(1);
  const controller = new AbortController();
  const sending = channel.sendWithin(2, 60_000, controller.signal);
  assert.equal(channel.recv(forever), 1);
  controller.abort();
  assert.equal(await sending, 'ok');
  assert.equal(channel.recv(forever), 2);
});

test('pushDropOldest drops the oldest that is not protected, keeps the order, and refuses when all are protected', () => {
  const channel = new Mpsc<string>('audit', 3);
  const keep = (item: string): boolean => item.startsWith('!');
  channel.trySend('moves the head');
  assert.equal(channel.recv(forever), 'moves the head');
  for (const item of ['!a', 'b', 'c']) assert.deepEqual(channel.pushDropOldest(item, keep).result, 'ok');
  assert.deepEqual(channel.pushDropOldest('!d', keep), { result: 'ok', dropped: 'b' });
  assert.deepEqual(channel.pushDropOldest('!e', keep), { result: 'ok', dropped: 'c' });
  assert.deepEqual(channel.pushDropOldest('f', keep), { result: 'full', dropped: undefined });
  assert.equal(channel.dropped_total, 2);
  assert.equal(channel.rejected_total, 1);
  assert.deepEqual(channel.pushDropOldest('g'), { result: 'ok', dropped: '!a' });
  assert.deepEqual(channel.recvMany(9, forever), ['!d', '!e', 'g']);
});

test('pushDropOldest hands over to a waiting receiver', async () => {
  const channel = new Mpsc<number>('audit', 1);
  const waiting = channel.recv(forever);
  assert.deepEqual(channel.pushDropOldest(1), { result: 'ok', dropped: undefined });
  assert.equal(await waiting, 1);
  assert.equal(channel.depth, 0);
});

test('`keep` that uses the channel is caught before anything is dropped', () => {
  const channel = new Mpsc<number>('audit', 2);
  channel.trySend(1);
  channel.trySend(2);
  assert.throws(() => channel.pushDropOldest(3, () => channel.recv(forever) === undefined), /must not use the channel/);
  assert.equal(channel.recv(forever), 2);
});

test('a signal that outlives the channel keeps one listener for all its waits, and none after close', async () => {
  const { signal } = new AbortController();
  const channel = new Mpsc<number>('jobs', 1);
  const listeners = (): number => getEventListeners(signal, 'abort').length;
  for (let item = 0; item < 100; item += 1) {
    const waiting = channel.recv(signal);
    channel.trySend(item);
    assert.equal(await waiting, item);
    assert.equal(listeners(), 1);
  }
  channel.trySend(1);
  const sending = channel.sendWithin(2, 60_000, signal);
  assert.equal(listeners(), 2);
  assert.equal(channel.recv(signal), 1);
  await sending;
  channel.close();
  assert.equal(listeners(), 0);
});

test('an item that was taken is not kept alive by the ring', async () => {
  const channel = new Mpsc<object>('jobs', 4);
  const refs: WeakRef<object>[] = [];
  const send = (count: number): void => {
    for (let n = 0; n < count; n += 1) {
      const item = { n };
      refs.push(new WeakRef(item));
      channel.pushDropOldest(item, (queued) => (queued as { n: number }).n === 0);
    }
  };
  const receive = async (): Promise<void> => void (await channel.recv(forever));
  const receiveTwo = async (): Promise<void> => void (await channel.recvMany(2, forever));
  send(6);
  await receive();
  await receiveTwo();
  await receive();
  const waiting = receive();
  send(1);
  await waiting;
  await collect(() => refs.every((ref) => ref.deref() === undefined));
  assert.equal(channel.depth, 0);
});

/** Collects garbage until the condition holds; the test runner's time limit ends a wait that never does. */
async function collect(done: () => boolean): Promise<void> {
  const { setFlagsFromString } = await import('node:v8');
  const { runInNewContext } = await import('node:vm');
  setFlagsFromString('--expose-gc');
  const gc = runInNewContext('gc') as () => void;
  for (let round = 0; round < 50; round += 1) {
    await settle(); // what a WeakRef gave out lives until the end of its task
    gc();
    if (done()) return;
  }
  assert.fail('still reachable after 50 collections');
}

// The reference: the same promises in the plainest code, with every outcome as text.
type Call =
  | { do: 'trySend' | 'push' | 'pushKeepingOdd' | 'sendWithin' }
  | { do: 'recv' | 'close' | 'settle' }
  | { do: 'recvMany'; max: number }
  | { do: 'abort' | 'expire'; nth: number };

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

  /** The item of a send is the id of its call. */
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

test('any sequence of calls gives what the reference gives', async () => {
  // Timers fire when the sequence says so.
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
  try {
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 1, max: 5 }), calls, fc.boolean(), async (capacity, sequence, shared) => {
        timers.clear();
        const channel = new Mpsc<number>('jobs', capacity);
        const reference = new Reference(capacity);
        const outcomes = new Map<number, string>();
        const controllers = new Map<number, AbortController>();
        const common = new AbortController();
        const signalOf = (id: number): AbortSignal => {
          if (shared && id % 2 === 0) return common.signal;
          controllers.set(id, new AbortController());
          return controllers.get(id)!.signal;
        };
        const record = (id: number, answer: unknown): void => {
          Promise.resolve(answer).then(
            (value) => outcomes.set(id, Array.isArray(value) ? `[${value.join()}]` : String(value)),
            (error: unknown) => outcomes.set(id, `rejected ${error as string}`),
          );
        };
        const odd = (item: number): boolean => item % 2 === 1;
        for (const [id, call] of sequence.entries()) {
          current = id;
          if (call.do === 'trySend') {
            record(id, channel.trySend(id));
            reference.send(id, () => 'full');
          } else if (call.do === 'sendWithin') {
            record(id, channel.sendWithin(id, 5, signalOf(id)));
            reference.send(id, () => void reference.senders.push({ id, item: id }));
          } else if (call.do === 'push' || call.do === 'pushKeepingOdd') {
            const keep = call.do === 'push' ? undefined : odd;
            const { result, dropped } = channel.pushDropOldest(id, keep);
            record(id, dropped === undefined ? result : `${result} dropped ${dropped}`);
            reference.send(id, () => reference.push(id, keep ?? (() => false)));
          } else if (call.do === 'recv') {
            record(id, channel.recv(signalOf(id)));
            reference.receive(id, undefined);
          } else if (call.do === 'recvMany') {
            const answer = channel.recvMany(call.max, signalOf(id));
            record(id, answer);
            reference.receive(id, call.max);
          } else if (call.do === 'abort') {
            const own = [...reference.receivers, ...reference.senders].filter((waiter) => controllers.has(waiter.id));
            const waiter = own[call.nth];
            if (waiter === undefined) continue;
            controllers.get(waiter.id)!.abort(`gone ${waiter.id}`);
            reference.leave(waiter.id, `rejected gone ${waiter.id}`);
          } else if (call.do === 'expire') {
            const waiter = reference.senders[call.nth];
            if (waiter === undefined) continue;
            timers.get(waiter.id)!();
            reference.leave(waiter.id, 'full');
          } else if (call.do === 'close') {
            channel.close();
            reference.close();
          } else {
            await settle();
            assert.deepEqual(sorted(outcomes), sorted(reference.outcomes));
          }
          assert.equal(channel.depth, reference.queue.length);
          assert.deepEqual(
            [...timers.keys()],
            reference.senders.map((waiter) => waiter.id),
            'a timer for each waiting sender and no other',
          );
        }
        await settle();
        assert.deepEqual(sorted(outcomes), sorted(reference.outcomes));
        const rejected = [...reference.outcomes.values()].filter((outcome) => outcome === 'full');
        assert.equal(channel.rejected_total, rejected.length);
        const dropped = [...reference.outcomes.values()].filter((outcome) => outcome.includes('dropped'));
        assert.equal(channel.dropped_total, dropped.length);
        channel.close();
        assert.equal(getEventListeners(common.signal, 'abort').length, 0);
        for (const { signal } of controllers.values()) assert.equal(getEventListeners(signal, 'abort').length, 0);
      }),
      { numRuns: 1_000 },
    );
  } finally {
    installSched(previous);
  }
});

function sorted(outcomes: Map<number, string>): [number, string][] {
  return [...outcomes].toSorted(([a], [b]) => a - b);
}
