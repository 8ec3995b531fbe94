/** The drainer sends in order, around providers that wait, and survives an outage of mailbox. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { VirtualSched } from '@ron/kernel/testing';
import { CrashFileSystem, FaultyDisk } from '@ron/log/testing';
import { eventually, tempDirFor } from '@ron/testkit';
import { deliveryOf, drain, FakeMailbox, openSpool, ulidOf } from './testing/make.ts';

/** Lets steps that need no timer end, under a virtual clock too. */
async function turns(): Promise<void> {
  for (let turn = 0; turn < 60; turn++) await new Promise((resolve) => setImmediate(resolve));
}

test('deliveries reach mailbox in the order of each provider, and leave the disk', async () => {
  const { spool, events } = await openSpool({ fs: new CrashFileSystem() });
  for (let n = 1; n <= 300; n++) await spool.append(deliveryOf(n, n % 2 === 0 ? 'a' : 'b', 10), NEVER);
  const { mailbox, stop } = drain(spool);
  await eventually('the spool is empty', () => spool.count === 0 && spool.bytes === 0);
  await stop();
  for (const parity of [0, 1]) {
    const ids = mailbox.stored.filter((_, at) => at % 2 === parity);
    assert.deepEqual(ids, ids.toSorted());
  }
  assert.equal(new Set(mailbox.stored).size, 300);
  assert.ok(mailbox.calls.every(({ length }) => length <= 128));
  assert.deepEqual(
    events.map(({ kind }) => kind),
    ['spool began', 'spool began', 'spool emptied'],
  );
  await spool.close();
});

test('a full topic stops its own provider only; it is tried with one delivery at a time, and its order stays', async () => {
  const { spool } = await openSpool({ fs: new CrashFileSystem() });
  const mailbox = new FakeMailbox();
  let isFull = true;
  mailbox.refuse = ({ topic }) => (topic === 'hooks.a' && isFull ? 'full' : undefined);
  for (let n = 1; n <= 10; n++) await spool.append(deliveryOf(n, n % 2 === 0 ? 'a' : 'b'), NEVER);
  const { full, events, stop } = drain(spool, mailbox);
  await eventually('the other provider is sent', () => !spool.holds('b'));
  await spool.append(deliveryOf(11, 'b'), NEVER);
  await eventually('it goes on', () => !spool.holds('b'));
  assert.ok(full.has('hooks.a'));
  await eventually(
    'the full topic is tried again',
    () => mailbox.calls.filter((call) => call.length === 1 && call[0] === ulidOf(2)).length >= 2,
  );
  isFull = false;
  await eventually('the topic has room', () => spool.count === 0);
  await stop();
  const even = mailbox.stored.filter((id) => [2, 4, 6, 8, 10].map(ulidOf).includes(id));
  assert.deepEqual(even, [2, 4, 6, 8, 10].map(ulidOf));
  assert.ok(!full.has('hooks.a'));
  assert.deepEqual(
    events.map(({ kind }) => kind),
    ['topic full', 'topic has room'],
  );
  await spool.close();
});

test('in a topic with little room no small delivery passes a large one, also one that never fits', async () => {
  for (const refusal of ['full', 'large'] as const) {
    const { spool } = await openSpool({ fs: new CrashFileSystem() });
    const mailbox = new FakeMailbox();
    let room = 1000;
    mailbox.refuse = ({ payload }) => (payload.length > room ? refusal : undefined);
    await spool.append(deliveryOf(1, 'p', 5000), NEVER);
    await spool.append(deliveryOf(2, 'p', 10), NEVER);
    await spool.append(deliveryOf(3, 'q', 10), NEVER);
    const { full, stop } = drain(spool, mailbox);
    await eventually('another provider is sent', () => !spool.holds('q'));
    assert.equal(full.has('hooks.p'), refusal === 'full');
    await eventually('it was tried again', () => mailbox.calls.length >= 3);
    room = 5000;
    await eventually('all are sent', () => spool.count === 0);
    await stop();
    assert.deepEqual(mailbox.stored, [3, 1, 2].map(ulidOf));
    await spool.close();
  }
});

test('a refused topic keeps its deliveries; a conflict is dropped and reported', async () => {
  const { spool } = await openSpool({ fs: new CrashFileSystem() });
  const mailbox = new FakeMailbox();
  mailbox.refuse = ({ topic }) => (topic === 'hooks.a' ? 'topic' : undefined);
  mailbox.bodies.set(deliveryOf(2).idempotency_key, 'another body');
  await spool.append(deliveryOf(1, 'a'), NEVER);
  await spool.append(deliveryOf(2, 'b'), NEVER);
  await spool.append(deliveryOf(3, 'b'), NEVER);
  const { drainer, events, stop } = drain(spool, mailbox);
  await eventually('the other provider is sent', () => !spool.holds('b'));
  await stop();
  assert.equal(spool.count, 1);
  assert.ok(spool.holds('a'));
  assert.deepEqual(mailbox.stored, [ulidOf(3)]);
  assert.equal(drainer.conflicts_total, 1);
  assert.deepEqual(events.map(({ kind }) => kind).toSorted(), ['spool conflict', 'topic refused']);
  await spool.close();
});

test('[interop I-4] an outage of mailbox costs one call for each backoff, and ends without loss', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const { spool } = await openSpool({ fs: new CrashFileSystem() });
    const append = spool.append(deliveryOf(1), NEVER);
    await turns();
    await append;
    const mailbox = new FakeMailbox();
    mailbox.isAway = true;
    const { stop } = drain(spool, mailbox);
    for (let second = 0; second < 60; second++) {
      await clock.advance(1000);
      spool.changed.notifyOne();
      await turns();
    }
    const tries = mailbox.calls.length;
    assert.ok(tries >= 15 && tries <= 40, `${tries} calls in a minute`);
    mailbox.canTry = false;
    await clock.advance(10_000);
    await turns();
    assert.ok(mailbox.calls.length <= tries + 1, 'the breaker is open');
    mailbox.canTry = true;
    mailbox.isAway = false;
    await clock.advance(2000);
    await turns();
    assert.deepEqual(mailbox.stored, [ulidOf(1)]);
    await stop();
    const closed = spool.close();
    await turns();
    await closed;
  });
});

test('a delivery without a receipt gets it before it is sent after a restart, and waits while the log fails', async () => {
  const fs = new CrashFileSystem();
  const { spool } = await openSpool({ fs });
  await spool.append(deliveryOf(1), NEVER);
  await spool.close();
  const { spool: again } = await openSpool({ fs });
  const drained = drain(again);
  drained.receipts.isFailing = true;
  await eventually('the receipt cannot be written', () => drained.events.length > 0);
  assert.equal(drained.events[0]!.kind, 'spool waits for receipts', 'the spool can be read');
  assert.deepEqual(drained.mailbox.calls, []);
  await again.append(deliveryOf(2, 'b'), NEVER);
  await eventually('another provider goes on', () => drained.mailbox.stored.length === 1);
  drained.receipts.isFailing = false;
  let receipts = 0;
  drained.mailbox.onSend = async () => void (receipts = drained.receipts.written.length);
  await eventually('it is sent', () => drained.mailbox.stored.length === 2);
  assert.equal(receipts, 1, 'the receipt comes first');
  assert.deepEqual(drained.receipts.written, [ulidOf(1)], 'the sender writes that of a new delivery');
  await drained.stop();
  await again.close();
});

test('a delivery that a late call stored meanwhile is not sent', async () => {
  const { spool } = await openSpool({ fs: new CrashFileSystem() });
  const mailbox = new FakeMailbox();
  mailbox.canTry = false;
  await spool.append(deliveryOf(1), NEVER);
  await spool.append(deliveryOf(2), NEVER);
  const { stop } = drain(spool, mailbox);
  spool.delivered(ulidOf(1));
  mailbox.canTry = true;
  await eventually('the spool is empty', () => spool.count === 0);
  await stop();
  assert.deepEqual(mailbox.stored, [ulidOf(2)]);
  await spool.close();
});

test('[interop I-6] a stop finishes the batch in flight; a killed task sends no second batch beside it', async () => {
  const { spool } = await openSpool({ fs: new CrashFileSystem() });
  const mailbox = new FakeMailbox();
  const held = Promise.withResolvers<void>();
  mailbox.onSend = () => held.promise;
  await spool.append(deliveryOf(1), NEVER);
  const { drainer, stop } = drain(spool, mailbox);
  await eventually('the call is in flight', () => mailbox.calls.length === 1);
  const killed = new AbortController();
  const second = drainer.run({ stopping: NEVER, signal: killed.signal });
  // A task that begins after it and has no batch in flight shows that it had the time to send one.
  const { spool: other } = await openSpool({ fs: new CrashFileSystem() });
  await other.append(deliveryOf(1), NEVER);
  const beside = drain(other);
  await eventually('the other task has sent', () => other.count === 0);
  assert.equal(mailbox.calls.length, 1);
  killed.abort(new Error('killed'));
  await assert.rejects(second, /killed/);
  const stopped = stop();
  held.resolve();
  await stopped;
  assert.equal(mailbox.calls.length, 1);
  assert.equal(spool.count, 0);
  await beside.stop();
  for (const each of [spool, other]) await each.close();
});

test('[interop I-2] a killed task that removes settled deliveries ends with that before the next one begins', async () => {
  const clock = new VirtualSched();
  await clock.during(async () => {
    const { spool } = await openSpool({ fs: new CrashFileSystem() });
    const append = spool.append(deliveryOf(1), NEVER);
    await turns();
    await append;
    let removals = 0;
    const held = Promise.withResolvers<void>();
    spool.removeSettled = async () => {
      removals += 1;
      await held.promise;
    };
    const maintained: number[] = [];
    const maintain = spool.maintain.bind(spool);
    spool.maintain = async (signal) => {
      maintained.push(removals);
      await maintain(signal);
    };
    const { mailbox, drainer, stop } = drain(spool, new FakeMailbox());
    await turns();
    assert.equal(mailbox.stored.length, 1);
    await clock.advance(1000);
    await turns();
    assert.equal(removals, 1);
    const steps = maintained.length;
    const killed = new AbortController();
    const second = drainer.run({ stopping: NEVER, signal: killed.signal });
    await turns();
    assert.equal(maintained.length, steps, 'the removal goes on');
    killed.abort(new Error('killed'));
    await assert.rejects(second, /killed/);
    held.resolve();
    await stop();
    const closed = spool.close();
    await turns();
    await closed;
  });
});

test('a record that cannot be read stops its own provider only, and is sent once the disk recovers', async (t) => {
  const disk = new FaultyDisk();
  const { spool } = await openSpool({ dir: tempDirFor(t), fs: disk });
  await spool.append(deliveryOf(1, 'a', 5000), NEVER);
  await spool.append(deliveryOf(2, 'b', 100), NEVER);
  disk.badSector('.seg', 0, 4096);
  const { mailbox, events, stop } = drain(spool);
  await eventually('the other provider is sent', () => mailbox.stored.length === 1);
  await eventually('the problem is reported', () => events.some(({ kind }) => kind === 'spool unreadable'));
  disk.mend();
  await eventually('it is sent', () => mailbox.stored.length === 2);
  await stop();
  await spool.close();
});

test('a record that is damaged is reported and dropped', async () => {
  const fs = new CrashFileSystem();
  const { spool, events } = await openSpool({ fs });
  await spool.append(deliveryOf(1, 'a', 5000), NEVER);
  await spool.append(deliveryOf(2, 'a', 100), NEVER);
  const [path] = [...fs.files().keys()];
  fs.damage(path!, (bytes) => bytes.with(1000, 0xff));
  const { mailbox, stop } = drain(spool);
  await eventually('the next one is sent', () => mailbox.stored.length === 1);
  await stop();
  assert.deepEqual(mailbox.stored, [ulidOf(2)]);
  assert.equal(spool.damaged_total, 1);
  assert.ok(events.some((event) => event.kind === 'spool damaged' && event.problem.includes(ulidOf(1))));
  await spool.close();
});
