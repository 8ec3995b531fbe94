import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import type { Build, Options } from '@ron/explorer';
import { cancelledReceive, pipeline, waitThenDropOldest } from './mpsc.model.ts';
import type { MpscClass } from './mpsc.model.ts';
import { Mpsc } from './mpsc.ts';

const MPSC = import.meta.resolve('./mpsc.ts');
const WAIT_LIST = import.meta.resolve('../sync/wait-list.ts');
const SHUTDOWN = ['drain', 'abort'] as const;

/** The smallest size that shows a bug, and the one at which `hash` is cross-checked. */
const small = {
  pipeline: (Channel: MpscClass): Build => pipeline(Channel, { capacity: 1, jobs: [1, 1], shutdown: SHUTDOWN }),
  audit: (Channel: MpscClass): Build => waitThenDropOldest(Channel, { capacity: 1, writers: [['!a0', 'a1'], ['b0']] }),
  cancel: (Channel: MpscClass): Build => cancelledReceive(Channel, { capacity: 1, items: 2, receivers: 1 }),
};

const hashed = (model: keyof typeof small): Options => ({ hash: true, smaller: small[model](Mpsc) });

test('producers, a channel for one, a consumer and a shutdown: nothing is stuck, lost, doubled or overtaken', async () => {
  await assertHolds(pipeline(Mpsc, { capacity: 1, jobs: [2, 1], shutdown: SHUTDOWN }), hashed('pipeline'));
});

test('the same with a channel for two', async () => {
  await assertHolds(pipeline(Mpsc, { capacity: 2, jobs: [2, 2], shutdown: ['drain'] }), hashed('pipeline'));
  await assertHolds(pipeline(Mpsc, { capacity: 2, jobs: [2, 1], shutdown: ['abort'] }), hashed('pipeline'));
  await assertHolds(pipeline(Mpsc, { capacity: 2, jobs: [3], shutdown: SHUTDOWN }));
});

test('a bounded wait and then drop-oldest never drops protected items and never exceeds the capacity', async () => {
  const records = [
    ['!a0', 'a1'],
    ['b0', '!b1'],
  ];
  await assertHolds(waitThenDropOldest(Mpsc, { capacity: 2, writers: records }), hashed('audit'));
  await assertHolds(waitThenDropOldest(Mpsc, { capacity: 1, writers: [['!a0', 'a1'], ['!b0']] }), hashed('audit'));
});

test('cancelling a receive while items arrive loses none', async () => {
  await assertHolds(cancelledReceive(Mpsc, { capacity: 1, items: 2, receivers: 2 }), hashed('cancel'));
});

const MUTANTS = [
  {
    bug: 'close forgets the receivers that wait: the shutdown is lost',
    model: 'pipeline',
    find: 'while (this.#receivers.size > 0) this.#receivers.wakeFirst(this.#receivers.peek());',
    replace: 'if (this.#receivers.size > 0) return;',
    caught: /^deadlock: .*consumer at jobs\.recv/,
  },
  {
    bug: 'an item that was handed over is queued as well: the job is doubled',
    model: 'pipeline',
    find: 'this.#handOver(item);\n      return true;',
    replace: 'this.#handOver(item);',
    caught: /came twice/,
  },
  {
    bug: 'there is room for one too many',
    model: 'pipeline',
    find: 'if (this.#depth === this.capacity) return false;',
    replace: 'if (this.#depth > this.capacity) return false;',
    caught: /^invariant: 2 in a channel for 1/,
  },
  {
    bug: 'room is not given to the sender that waits for it',
    model: 'pipeline',
    find: 'if (this.#senders.size > 0) {',
    replace: 'if (this.#senders.size > 1) {',
    caught: /refused though there was room/,
  },
  {
    bug: 'a sender gets ok and its item is not queued: the job is lost',
    model: 'pipeline',
    find: 'this.#append(this.#senders.peek());',
    replace: '',
    caught: 'final',
  },
  {
    bug: 'close lets the consumer go before it has drained',
    model: 'pipeline',
    find: 'if (this.#depth > 0) return this.#take();\n    if (this.#closed) return undefined;',
    replace: 'if (this.#closed) return undefined;\n    if (this.#depth > 0) return this.#take();',
    caught: /^final: the consumer left before it was all drained/,
  },
  {
    bug: 'the oldest goes, protected or not',
    model: 'audit',
    find: 'keep === undefined ? 0 : this.#oldestUnprotected(keep)',
    replace: '0',
    caught: /^invariant: a protected record was dropped/,
  },
  {
    bug: 'drop-oldest does not take out the dropped item',
    model: 'audit',
    find: 'this.#removeAt(at)',
    replace: 'this.#ring[(this.#head + at) % this.#ring.length]',
    caught: /^invariant: 2 in a channel for 1/,
  },
  {
    bug: 'a sender whose time ran out stays in the list, and its item is queued later after all',
    model: 'audit',
    file: WAIT_LIST,
    find: 'payload as P);\n    this.#release(waiter).wake(value);',
    replace: 'payload as P);\n    waiter.parked?.wake(value);',
    caught: /each record exactly once/,
  },
  {
    bug: 'an abort after the hand-over rejects the receiver: its item is lost',
    model: 'cancel',
    find: 'return this.#receivers.park(signal, undefined) as Promise<T | undefined>;',
    replace: `return this.#receivers.park(signal, undefined).then((item) => {
      signal.throwIfAborted();
      return item as T;
    });`,
    caught: /^final: only .* came out/,
  },
  {
    bug: 'an aborted receiver stays in the list: the next item is lost',
    model: 'cancel',
    file: WAIT_LIST,
    find: 'this.#release(waiter).fail(reason);',
    replace: 'waiter.parked?.fail(reason);',
    caught: /^final: only .* came out/,
  },
  {
    bug: 'a waiter object that is reused still answers to its last abort',
    model: 'cancel',
    file: WAIT_LIST,
    find: 'waiter.parked = undefined;\n',
    replace: '',
    caught: 'deadlock',
  },
] as const;

for (const { bug, model, find, replace, caught, ...where } of MUTANTS) {
  test(`caught: ${bug}`, async () => {
    const file = 'file' in where ? where.file : MPSC;
    const broken = await mutant<{ Mpsc: MpscClass }>(file, find, replace, { entry: MPSC });
    assert.notEqual(broken.Mpsc, Mpsc);
    await assertCaught(small[model](broken.Mpsc), {}, caught);
  });
}
