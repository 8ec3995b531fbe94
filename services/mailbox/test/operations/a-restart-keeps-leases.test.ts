import assert from 'node:assert/strict';
import { test } from 'node:test';
import { texts, TOPIC, withMailbox } from './support.ts';

test('[mailbox I-9] leases, attempts and delays survive a restart, and a receiver may still ack', async () => {
  await withMailbox(async (mailbox) => {
    const { clock, advance, reopen, send, receive, nack, ack } = mailbox;
    clock.chances = [0];
    await send('leased');
    await send('returned');
    await send('delayed', { delay_ms: 20_000 });
    const [leased, returned] = await receive({ visibility_ms: 30_000 });
    await nack(returned!, { delay_ms: 20_000 });
    await reopen(() => clock.advance(10_000));
    const { ledger } = mailbox.box.topic(TOPIC);
    assert.deepEqual([ledger.leased, ledger.delayed, ledger.ready], [1, 2, 0]);
    await advance(9_999);
    assert.deepEqual(await receive(), []);
    await advance(1);
    const visible = await receive();
    assert.deepEqual(texts(visible), ['returned', 'delayed']);
    assert.deepEqual(
      visible.map(({ attempts }) => attempts),
      [2, 1],
    );
    assert.deepEqual(await ack(leased!), ['ok']);
  });
});

test('[mailbox I-9] a lease that ended while mailbox was stopped ends at the start, and counts as an attempt', async () => {
  await withMailbox(async ({ clock, advance, reopen, send, receive }) => {
    clock.chances = [0];
    await send('one');
    await receive({ visibility_ms: 1000 });
    await reopen(() => clock.advance(60_000));
    await advance(0);
    await advance(0);
    const [message] = await receive();
    assert.deepEqual([message?.attempts, message?.delivery], [2, 2]);
  });
});

for (const [name, jump_ms] of [
  ['back', -3_600_000],
  ['forward', 3_600_000],
] as const) {
  test(`[mailbox I-9] a wall clock that jumps ${name} over a restart costs at most one visibility or delay`, async () => {
    await withMailbox(async ({ clock, advance, reopen, send, receive, nack }) => {
      clock.chances = [0];
      await send('leased');
      await send('delayed', { delay_ms: 20_000 });
      await send('returned');
      const [, returned] = await receive({ visibility_ms: 30_000 });
      await nack(returned!, { delay_ms: 20_000 });
      const wall_ms = clock.wall_ms.bind(clock);
      clock.wall_ms = () => wall_ms() + jump_ms;
      await reopen();
      await advance(30_000);
      await advance(0);
      assert.deepEqual(texts(await receive()), ['leased', 'delayed', 'returned']);
    });
  });
}

test('a clock jump while mailbox runs does not end a lease', async () => {
  await withMailbox(async ({ clock, advance, send, receive }) => {
    clock.chances = [0];
    await send('one');
    await receive({ visibility_ms: 30_000 });
    const wall_ms = clock.wall_ms.bind(clock);
    clock.wall_ms = () => wall_ms() + 3_600_000;
    await advance(29_999);
    assert.deepEqual(await receive(), []);
  });
});
