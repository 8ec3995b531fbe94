/** The answers of the sender for duplicates, large bodies and full topics, and the waits of deliveries. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Deadline, NEVER, RonError, WorkQueue } from '@ron/kernel';
import { MemoryDisk } from '@ron/log';
import { FaultyDisk } from '@ron/log/testing';
import type { WebhookReceipt } from '@ron/proto';
import { eventually, tempDirFor } from '@ron/testkit';
import { concurrency } from '../concurrency.ts';
import { FullTopics } from '../mailbox/full-topics.ts';
import { deliveryOf, FakeMailbox, keyOf, openSpool, takeAll, ulidOf } from '../spool/testing/make.ts';
import type { SpoolInit } from '../spool/spool.ts';
import type { VerifiedDelivery } from './accepted.ts';
import { Sender } from './sender.ts';

const MIB = 1024 * 1024;
const { lanes } = concurrency.channels.webhooks;
const b3Of = (body: number): string => `b3:${body.toString(16).padStart(64, '0')}`;

interface Given {
  readonly key?: number;
  readonly body?: number;
  readonly bytes?: number;
  readonly provider?: string;
}

/** The delivery `n`: by default its key and its body are its own. */
function verified(n: number, { key = n, body = n, bytes = 1, provider = 'p' }: Given = {}): VerifiedDelivery {
  const { receipt, ...delivery } = deliveryOf(n, provider, bytes, key);
  return { delivery: { ...delivery, payload: Buffer.alloc(bytes, body) }, receipt: { ...receipt, b3: b3Of(body) } };
}

class Receipts {
  readonly written = new Map<string, WebhookReceipt>();
  isFailing = false;
  isFull = false;
  has = (id: string): boolean => this.written.has(id);
  isRestorable = (_id: string): boolean => true;
  read = (id: string): Promise<WebhookReceipt | undefined> => Promise.resolve(this.written.get(id));
  append = async (receipts: readonly WebhookReceipt[]): Promise<void> => {
    if (this.isFailing) throw new RonError('not_ready', 'the disk failed');
    for (const receipt of receipts) {
      assert.ok(!this.written.has(receipt.id), 'a receipt is written once');
      this.written.set(receipt.id, receipt);
    }
  };
  bodyOf = (id: string): string | undefined => this.written.get(id)?.b3;
}

async function setup(some: Partial<SpoolInit> = {}, writing_ms = 2000) {
  const mailbox = new FakeMailbox();
  const { spool } = await openSpool({ fs: new MemoryDisk(64 * MIB), page_bits: 8, ...some });
  const receipts = new Receipts();
  const queue = new WorkQueue('webhooks', { capacity: 256, lanes, budget_ms: 2000 });
  const full = new FullTopics();
  const writing = (): Deadline => Deadline.after('writing', writing_ms);
  const sender = new Sender({ queue, mailbox, spool, full, receipts, spool_after_ms: () => 2000, writing });
  const running = sender.run({ signal: NEVER });
  const store = (given: VerifiedDelivery, budget_ms = 2000) =>
    sender.store(given, Deadline.after('request', budget_ms)).catch((error: unknown) => error as RonError);
  const accept = async (given: VerifiedDelivery) => {
    const answer = await store(given);
    assert.ok(!(answer instanceof Error), (answer as Error).message);
    return answer;
  };
  const refused = async (given: VerifiedDelivery) => {
    const answer = await store(given);
    assert.ok(answer instanceof RonError, JSON.stringify(answer));
    return answer;
  };
  const stop = async () => {
    queue.close();
    await running;
    await spool.close();
  };
  return { mailbox, spool, receipts, queue, full, store, accept, refused, stop };
}

test('a duplicate of a spooled delivery gets a receipt of the body in the spool, even if the first got none', async () => {
  const { mailbox, spool, receipts, accept, refused, stop } = await setup();
  mailbox.isReady = false;
  receipts.isFailing = true;
  assert.equal((await refused(verified(1, { key: 7 }))).code, 'not_ready');
  receipts.isFailing = false;
  const answer = await accept(verified(2, { key: 7 }));
  assert.deepEqual(answer, { receipt: ulidOf(1), duplicate: true, place: 'spool' });
  assert.equal(receipts.bodyOf(ulidOf(1)), b3Of(1), 'the body that is stored');
  const [kept] = await takeAll(spool);
  assert.deepEqual(receipts.written.get(ulidOf(1)), kept!.receipt);
  await stop();
});

test('a replay in a brownout goes to mailbox again unless its delivery is in the spool: only mailbox decides by its window', async () => {
  const { mailbox, spool, accept, stop } = await setup();
  const sent = await accept(verified(1));
  mailbox.isReady = false;
  const spooled = await accept(verified(2));
  const again = await accept(verified(7, { key: 2, body: 2 }));
  assert.deepEqual(again, { receipt: spooled.receipt, duplicate: true, place: 'spool' });
  spool.delivered(ulidOf(2));
  for (const [at, first] of [sent, spooled].entries()) {
    const replay = await accept(verified(8 + at, { key: 1 + at, body: 1 + at }));
    assert.deepEqual([replay.duplicate, replay.place], [false, 'spool']);
    assert.notEqual(replay.receipt, first.receipt);
  }
  assert.equal(spool.count, 2);
  await stop();
});

test('a delivery whose spooled record was damaged is stored when its provider repeats it', async () => {
  const { mailbox, spool, accept, stop } = await setup();
  mailbox.isReady = false;
  await accept(verified(1));
  await accept(verified(2));
  const [damaged] = spool.take({ messages: 1, bytes: MIB }, () => 1);
  spool.drop(damaged!);
  assert.equal(spool.count, 1);
  const repeated = await accept(verified(3, { key: 1, body: 1 }));
  assert.deepEqual(repeated, { receipt: ulidOf(3), duplicate: false, place: 'spool' });
  assert.equal(spool.count, 2);
  await stop();
});

test('deliveries of one key in one batch have one message and one receipt: those of the first', async () => {
  for (const isReady of [true, false]) {
    const { mailbox, receipts, accept, stop } = await setup();
    mailbox.isReady = isReady;
    const answers = await Promise.all([1, 2, 3].map((n) => accept(verified(n, { key: 7 }))));
    assert.deepEqual(
      answers.map(({ receipt, duplicate }) => [receipt, duplicate]),
      [1, 2, 3].map((n) => [ulidOf(1), n > 1]),
    );
    assert.equal(receipts.written.size, 1);
    assert.equal(receipts.bodyOf(ulidOf(1)), b3Of(1));
    await stop();
  }
});

test('deliveries of one key in one batch fail with the first, with its reason only if they have its body', async () => {
  const { mailbox, store, stop } = await setup();
  mailbox.refuse = () => 'large';
  const answers = await Promise.all([
    store(verified(1, { key: 7, body: 1 })),
    store(verified(2, { key: 7, body: 1 })),
    store(verified(3, { key: 7, body: 2 })),
  ]);
  assert.deepEqual(
    answers.map((answer) => answer instanceof RonError && answer.code),
    ['payload_too_large', 'payload_too_large', 'not_ready'],
  );
  await stop();
});

test('a known key gets the first receipt, also for another body; one that does not fit it is not answered with it', async () => {
  const { mailbox, receipts, accept, stop } = await setup();
  await accept(verified(1, { key: 1 }));
  assert.equal((await accept(verified(2, { key: 1, body: 1 }))).receipt, ulidOf(1), 'the same body');
  assert.equal((await accept(verified(3, { key: 1, body: 3 }))).receipt, ulidOf(1), 'another body');
  // A holder of `mailbox:send` stored keys under the id of another receipt.
  await mailbox.send([{ topic: 'hooks.p', id: ulidOf(1), idempotency_key: keyOf(4), payload: Buffer.alloc(1, 4) }]);
  const forged = await accept(verified(4));
  assert.deepEqual([forged.receipt, receipts.bodyOf(forged.receipt)], [ulidOf(4), b3Of(4)]);
  const other = await accept(verified(5, { key: 1, body: 5, provider: 'q' }));
  assert.deepEqual([other.receipt, receipts.bodyOf(other.receipt)], [ulidOf(5), b3Of(5)], 'of another provider');
  await mailbox.send([{ topic: 'hooks.p', id: ulidOf(99), idempotency_key: keyOf(6), payload: Buffer.alloc(1, 6) }]);
  const without = await accept(verified(6));
  assert.deepEqual([without.receipt, receipts.bodyOf(without.receipt)], [ulidOf(99), b3Of(6)], 'no receipt yet');
  await stop();
});

test('[interop I-5] a spool whose disk hangs refuses its deliveries in time, and delays no other', async (t) => {
  const disk = new FaultyDisk();
  const { mailbox, spool, receipts, store, accept, refused, stop } = await setup({ dir: tempDirFor(t), fs: disk }, 200);
  mailbox.isReady = false;
  await accept(verified(1, { provider: 'a' }));
  mailbox.isReady = true;
  disk.hold('.seg', 'sync');
  const spooled = [verified(2, { provider: 'a' }), verified(3, { provider: 'a' })];
  const answers = [store(spooled[0]!)];
  await eventually('the disk hangs', () => disk.waiting > 0);
  // In one batch, and in later ones.
  answers.push(store(spooled[1]!));
  for (const n of [4, 5, 6]) assert.equal((await accept(verified(n, { provider: 'b' }))).place, 'mailbox');
  for (const answer of await Promise.all(answers)) assert.equal((answer as RonError).code, 'not_ready');
  assert.equal((await refused(spooled[0]!)).code, 'not_ready', 'it waits for the same write');
  assert.ok(!receipts.has(ulidOf(2)));
  disk.mend();
  await eventually('its write has ended', () => spool.take({ messages: 9, bytes: MIB }, () => 9).length === 2);
  const retry = await accept(verified(7, { provider: 'a', key: 2, body: 2 }));
  assert.deepEqual(retry, { receipt: ulidOf(2), duplicate: true, place: 'spool' });
  assert.equal((await accept(spooled[1]!)).duplicate, false, 'it was not being written');
  await stop();
});

test('a repeated delivery whose first one is being spooled gets the answer of that one', async (t) => {
  const disk = new FaultyDisk();
  const { mailbox, spool, receipts, accept, stop } = await setup({ dir: tempDirFor(t), fs: disk });
  mailbox.isReady = false;
  disk.hold('.seg', 'sync');
  const first = accept(verified(1, { key: 7 }));
  await eventually('it is being written', () => disk.waiting > 0);
  const second = accept(verified(2, { key: 7 }));
  disk.mend();
  assert.deepEqual(await first, { receipt: ulidOf(1), duplicate: false, place: 'spool' });
  assert.deepEqual(await second, { receipt: ulidOf(1), duplicate: true, place: 'spool' });
  assert.deepEqual([spool.count, receipts.written.size], [1, 1]);
  await stop();
});

test('a duplicate whose first receipt was removed gets one of its own: an id has one receipt', async () => {
  const { receipts, accept, stop } = await setup();
  await accept(verified(1, { key: 7, body: 1 }));
  receipts.written.delete(ulidOf(1));
  receipts.isRestorable = (id) => id !== ulidOf(1);
  const again = await accept(verified(2, { key: 7, body: 1 }));
  assert.deepEqual(again, { receipt: ulidOf(2), duplicate: true, place: 'mailbox' });
  assert.deepEqual([...receipts.written.keys()], [ulidOf(2)]);
  await stop();
});

test('another body under a key whose message has no receipt gets a receipt of its own', async () => {
  const { mailbox, receipts, accept, refused, stop } = await setup();
  receipts.isFailing = true;
  assert.equal((await refused(verified(1, { key: 7, body: 1 }))).code, 'not_ready');
  receipts.isFailing = false;
  const other = await accept(verified(2, { key: 7, body: 2 }));
  assert.deepEqual([mailbox.stored, other.receipt, other.duplicate], [[ulidOf(1)], ulidOf(2), true]);
  assert.deepEqual([...receipts.written.keys()], [ulidOf(2)]);
  await stop();
});

test('a call never has more than 1 MiB of bodies, unless one is larger, and the order stays', async () => {
  const { mailbox, accept, stop } = await setup();
  const sizes = [MIB - 1, 1, MIB - 1, 5, MIB, 7, 8];
  await Promise.all(sizes.map((bytes, at) => accept(verified(at + 1, { bytes }))));
  assert.deepEqual(
    mailbox.calls.map((call) => call.length),
    [2, 1, 1, 1, 2],
  );
  assert.deepEqual(
    mailbox.calls.flat(),
    sizes.map((_, at) => ulidOf(at + 1)),
  );
  await stop();
});

test('[interop I-6] the delivery that did not fit is stored although the queue was closed meanwhile', async () => {
  const { mailbox, queue, accept, stop } = await setup();
  mailbox.onSend = async () => queue.close();
  await Promise.all([MIB - 1, MIB].map((bytes, at) => accept(verified(at + 1, { bytes }))));
  await stop();
  assert.deepEqual(mailbox.stored, [ulidOf(1), ulidOf(2)]);
});

test('[interop I-5] a delivery is stored although the one behind it expires while the sender takes it', async () => {
  const { mailbox, store, accept, stop } = await setup();
  const first = accept(verified(1));
  const second = store(verified(2), 5);
  for (const until = performance.now() + 20; performance.now() < until;);
  assert.equal((await first).place, 'mailbox');
  assert.equal(((await second) as RonError).code, 'timeout');
  assert.deepEqual(mailbox.stored, [ulidOf(1)]);
  await stop();
});

test('a body that its topic never takes gets 413; the topic is not full, and those behind it go to the spool', async () => {
  const { mailbox, full, spool, store, accept, refused, stop } = await setup();
  mailbox.refuse = ({ payload }) => (payload.length > 10 ? 'large' : undefined);
  const [large, behind] = await Promise.all([store(verified(1, { bytes: 11 })), accept(verified(2))]);
  assert.ok(large instanceof RonError && large.code === 'payload_too_large');
  assert.match(large.message, /max_bytes of the topic hooks\.p/);
  assert.equal(behind.place, 'spool');
  assert.ok(!full.has('hooks.p'));
  assert.deepEqual(
    (await takeAll(spool)).map(({ id }) => id),
    [ulidOf(2)],
  );
  assert.equal((await refused(verified(3, { bytes: 11 }))).code, 'payload_too_large');
  assert.equal((await accept(verified(4))).place, 'mailbox');
  await stop();
});

test('in a topic with little room no small delivery passes a large one', async () => {
  const { mailbox, full, store, stop } = await setup();
  mailbox.refuse = ({ payload }) => (payload.length > 10 ? 'full' : undefined);
  const answers = await Promise.all([store(verified(1, { bytes: 11 })), store(verified(2))]);
  assert.deepEqual(
    answers.map((answer) => answer instanceof RonError && answer.code),
    ['not_ready', 'not_ready'],
  );
  assert.deepEqual(mailbox.stored, []);
  assert.ok(full.has('hooks.p'));
  await stop();
});
