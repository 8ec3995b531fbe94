import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { texts, TOPIC, withMailbox } from './support.ts';

test('[mailbox I-3] a leased message is not delivered before its visibility ends', async () => {
  await withMailbox(async ({ box, clock, advance, send, receive }) => {
    clock.chances = [0];
    await send('one');
    assert.deepEqual(texts(await receive({ visibility_ms: 5000 })), ['one']);
    assert.deepEqual(await receive(), []);
    await advance(4999);
    assert.deepEqual(await receive(), []);
    assert.equal(box.topic(TOPIC).ledger.leased, 1);
    await advance(1);
    await advance(0);
    assert.deepEqual(texts(await receive()), ['one']);
  });
});

test('[mailbox I-7] a failed delivery waits U[0, min(60 s, 1 s * 2^n)]', async () => {
  await withMailbox(
    async ({ clock, advance, send, receive, nack }) => {
      clock.chances = [0.999];
      await send('one');
      for (const [failures, wait_ms] of [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000].entries()) {
        const [message] = await receive();
        assert.equal(message?.attempts, failures + 1);
        await nack(message);
        await advance(wait_ms * 0.998);
        assert.deepEqual(await receive(), [], `failure ${failures + 1}`);
        await advance(wait_ms * 0.002);
      }
      clock.chances = [0];
      const [message] = await receive({ visibility_ms: 1000 });
      assert.equal(message?.attempts, 9);
      await advance(1000);
      await advance(0);
      assert.equal((await receive()).length, 1, 'a timeout with the least backoff');
    },
    { max_deliveries: 12 },
  );
});

test('[mailbox I-7] after max_deliveries a message is a dead letter, by nack and by timeout, with its last error', async () => {
  await withMailbox(async (mailbox) => {
    const { events, clock, advance, reopen, send, receive, nack } = mailbox;
    clock.chances = [0];
    await send('nacked');
    await send('timed out');
    for (let delivery = 1; delivery <= 3; delivery++) {
      const [one, two] = await receive({ visibility_ms: 1000 });
      assert.deepEqual([one?.attempts, two?.attempts], [delivery, delivery]);
      await nack(one!, { delay_ms: 0, error: `try ${delivery}` });
      await advance(1000);
      await advance(0);
    }
    assert.deepEqual(await receive(), []);
    const list = async () => (await mailbox.box.deadLetters(TOPIC, 0, 10, NEVER)).dead;
    const dead = await list();
    assert.deepEqual(
      dead.map(({ reason, attempts, error }) => ({ reason, attempts, error })),
      [
        { reason: 'max_deliveries', attempts: 3, error: 'try 3' },
        { reason: 'max_deliveries', attempts: 3, error: undefined },
      ],
    );
    const died = events.filter((event) => event.kind === 'messages are dead');
    assert.deepEqual(
      died.map(({ count }) => count),
      [1, 1],
    );
    await reopen();
    assert.deepEqual(await list(), dead);
  });
});

test('[mailbox I-7] a dead letter that cannot be written stays leased and is tried again', async () => {
  await withMailbox(async ({ box, disk, clock, advance, send, receive }) => {
    clock.chances = [0];
    await send('one');
    for (let delivery = 1; delivery <= 3; delivery++) {
      assert.equal((await receive({ visibility_ms: 1000 })).length, 1);
      if (delivery === 3) disk.fail('segments', 'EIO');
      await advance(1000);
      await advance(0);
    }
    assert.deepEqual(await receive(), []);
    assert.equal(box.topic(TOPIC).ledger.leased, 1);
    disk.mend();
    await clock.advance(10_000);
    await advance(0);
    assert.equal(box.topic(TOPIC).ledger.dead, 1);
  });
});

test('nack with dead makes a dead letter at once; delay_ms replaces the backoff', async () => {
  await withMailbox(async ({ box, advance, send, receive, nack }) => {
    await send('one');
    const [first] = await receive();
    assert.deepEqual(await nack(first!, { delay_ms: 50_000 }), ['ok']);
    await advance(49_999);
    assert.deepEqual(await receive(), []);
    await advance(1);
    const [second] = await receive();
    assert.deepEqual(await nack(second!, { dead: true, error: 'cannot parse' }), ['ok']);
    const { dead } = await box.deadLetters(TOPIC, 0, 10, NEVER);
    assert.deepEqual([dead[0]?.reason, dead[0]?.error], ['nacked', 'cannot parse']);
  });
});

test('a replay is a new message with replay_of, and a deleted dead letter is gone', async () => {
  await withMailbox(async (mailbox) => {
    const { box, reopen, send, receive, nack, ack } = mailbox;
    for (const text of ['one', 'two', 'three']) await send(text, { key: 'k', headers: { kind: text } });
    const ids: string[] = [];
    for (let count = 0; count < 3; count++) {
      const [message] = await receive();
      ids.push(message!.id);
      await nack(message!, { dead: true });
    }
    const { dead } = await box.deadLetters(TOPIC, 0, 2, NEVER);
    assert.deepEqual(
      dead.map(({ id }) => id),
      ids.slice(0, 2),
    );
    const page = await box.deadLetters(TOPIC, dead[1]!.seq, 2, NEVER);
    assert.deepEqual(
      page.dead.map(({ id }) => id),
      ids.slice(2),
    );
    assert.deepEqual(await box.replayDead(TOPIC, { seqs: [dead[1]!.seq], limit: 128 }, NEVER), {
      replayed: 1,
      left: 2,
    });
    assert.deepEqual(await box.deleteDead(TOPIC, { limit: 1 }, NEVER), { deleted: 1, left: 1 });
    await reopen();
    const [again] = await receive();
    assert.deepEqual(
      [again!.replay_of, again!.key, again!.headers, again!.attempts, texts([again!])],
      [ids[1], 'k', { kind: 'two' }, 1, ['two']],
    );
    await ack(again!);
    assert.deepEqual(mailbox.box.topic(TOPIC).ledger, {
      sent: 4,
      acked: 1,
      ready: 0,
      delayed: 0,
      leased: 0,
      dead: 1,
      gone: 2,
    });
  });
});

test('a replay into a full topic stops, and fails if nothing was replayed', async () => {
  await withMailbox(
    async ({ box, send, receive, nack }) => {
      for (let count = 0; count < 3; count++) {
        await send(`${count}`);
        const [message] = await receive();
        await nack(message!, { dead: true });
      }
      await send('waiting');
      assert.deepEqual(await box.replayDead(TOPIC, { limit: 10 }, NEVER), { replayed: 1, left: 2 });
      await assert.rejects(box.replayDead(TOPIC, { limit: 10 }, NEVER), { code: 'storage_full' });
      assert.equal(box.topic(TOPIC).ledger.ready, 2);
    },
    { max_messages: 2 },
  );
});

test('a nack is counted once for each delivery', async () => {
  await withMailbox(async ({ box, send, receive }) => {
    await send('one');
    const [message] = await receive();
    const tokens = [message!.token, message!.token];
    assert.deepEqual(await box.nack(TOPIC, tokens, { delay_ms: 1000 }, NEVER), ['ok', 'ok']);
    await box.nack(TOPIC, tokens, { delay_ms: 1000 }, NEVER);
    assert.equal(box.parts.topics.counts.of(TOPIC).settled.nacked, 1);
  });
});
