import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { MAILBOX_LIMITS } from '@ron/proto';
import { stored, texts, TOPIC, withMailbox } from './support.ts';

test('[mailbox I-11] a full topic refuses sends by messages and by bytes, sends in flight included', async () => {
  await withMailbox(
    async ({ box, disk, clock, events, send, receive, ack }) => {
      disk.hold('segments');
      const sending = [send('one'), send('two')];
      await clock.settle();
      assert.deepEqual(await send('three'), { error: 'full', detail: 'the topic has no room for the message' });
      disk.mend();
      await Promise.all(sending);
      assert.deepEqual(box.parts.topics.full(), [TOPIC]);
      assert.equal(events.filter(({ kind }) => kind === 'topic full').length, 1);
      assert.equal(stored(await send('other', { topic: 'others' })).duplicate, false, 'other topics go on');
      const [message] = await receive();
      await ack(message!);
      assert.deepEqual(box.parts.topics.full(), []);
      assert.deepEqual(await send('x'.repeat(48)), { error: 'full', detail: 'the topic has no room for the message' });
      assert.deepEqual(box.parts.topics.full(), [TOPIC], 'a send that fits an empty topic was refused');
      stored(await send('four'));
    },
    { max_messages: 2, max_bytes: 50 },
  );
});

test('[mailbox I-11] a topic at its limit is full, before a send is refused and after a restart', async () => {
  await withMailbox(
    async (mail) => {
      await mail.send('12345');
      assert.deepEqual(mail.box.parts.topics.full(), []);
      await mail.send('67890');
      assert.deepEqual(mail.box.parts.topics.full(), [TOPIC], 'by bytes');
      await mail.reopen();
      assert.deepEqual(mail.box.parts.topics.full(), [TOPIC], 'after a restart');
      await mail.box.setPolicy(TOPIC, { max_bytes: 1000 }, NEVER);
      assert.deepEqual(mail.box.parts.topics.full(), []);
      await mail.box.setPolicy(TOPIC, { max_bytes: 1000, max_messages: 2 }, NEVER);
      assert.deepEqual(mail.box.parts.topics.full(), [TOPIC], 'by messages');
    },
    { max_bytes: 10 },
  );
});

test('[mailbox I-11] a message larger than its topic is refused for good, and does not make the topic full', async () => {
  await withMailbox(
    async ({ box, events, send }) => {
      const refusal = {
        error: 'full',
        detail: 'the message is larger than max_bytes of its topic',
        retryable: false,
      };
      assert.deepEqual(await send('x'.repeat(11)), refusal, 'a new topic');
      stored(await send('x'));
      assert.deepEqual(await send('x'.repeat(11)), refusal);
      assert.deepEqual(box.parts.topics.full(), []);
      assert.deepEqual(
        events.map(({ kind }) => kind),
        ['topic created'],
      );
      const { counts } = box.parts.topics;
      assert.deepEqual([counts.of(TOPIC).sent.full, counts.others.sent.full], [1, 1], 'each refusal is counted');
    },
    { max_bytes: 10 },
  );
});

test('[mailbox I-11] one topic too many is refused, and only that message', async () => {
  await withMailbox(async ({ box }) => {
    const names = Array.from({ length: MAILBOX_LIMITS.topics }, (_, index) => `t${index}`);
    for (let at = 0; at < names.length; at += 128)
      await box.send(
        names.slice(at, at + 128).map((topic) => ({ topic, payload: Buffer.from('x') })),
        NEVER,
      );
    const [refused, sent] = await box.send(
      ['one.more', 't7'].map((topic) => ({ topic, payload: Buffer.from('x') })),
      NEVER,
    );
    assert.deepEqual(refused, { error: 'full', detail: 'there are 256 topics already' });
    assert.ok(box.parts.topics.isAtLimit);
    stored(sent!);
    await assert.rejects(box.setPolicy('one.more', {}, NEVER), { code: 'storage_full' });
    assert.equal(box.topics().length, MAILBOX_LIMITS.topics);
  });
});

test('a receive stops at bytes_max, and one message always fits', async () => {
  await withMailbox(async ({ send, receive }) => {
    for (const size of [100, 10, 10]) await send('x'.repeat(size));
    assert.equal((await receive({ bytes_max: 1 })).length, 1);
    assert.equal((await receive({ bytes_max: 20 })).length, 2);
  });
});

test('[mailbox I-8] messages older than max_age become dead letters; dead letters are dropped by age, count and bytes', async () => {
  await withMailbox(
    async ({ box, events, clock, send, receive, nack, advance }) => {
      await send('leased');
      await receive({ visibility_ms: 30_000 });
      await send('old');
      await clock.advance(11_000);
      await send('young');
      await box.parts.retention.pass(NEVER);
      const reasons = async () => (await box.deadLetters(TOPIC, 0, 10, NEVER)).dead.map(({ reason }) => reason);
      assert.deepEqual(await reasons(), ['expired']);
      assert.deepEqual(texts(await receive()), ['young']);
      await advance(19_000);
      await box.parts.retention.pass(NEVER);
      assert.deepEqual(await reasons(), ['expired', 'expired'], 'after its lease');
      for (let count = 0; count < 3; count++) {
        await send(`${count}`);
        const [message] = await receive();
        await nack(message!, { dead: true });
      }
      await box.parts.retention.pass(NEVER);
      assert.deepEqual(await reasons(), ['nacked', 'nacked', 'nacked']);
      const counts = box.parts.topics.counts.of(TOPIC);
      assert.deepEqual(counts.dropped, { age: 0, count: 2, bytes: 0 });
      await send('x'.repeat(45));
      const [large] = await receive();
      await nack(large!, { dead: true });
      await box.deleteDead(TOPIC, { limit: 1 }, NEVER);
      await box.parts.retention.pass(NEVER);
      assert.deepEqual(counts.dropped, { age: 0, count: 2, bytes: 0 });
      await box.setPolicy(TOPIC, { dead_max_bytes: 46 }, NEVER);
      await box.parts.retention.pass(NEVER);
      assert.deepEqual(counts.dropped, { age: 0, count: 2, bytes: 1 });
      await clock.advance(86_400_000);
      await box.parts.retention.pass(NEVER);
      assert.deepEqual(counts.dropped, { age: 2, count: 2, bytes: 1 });
      const { ledger } = box.topic(TOPIC);
      assert.deepEqual([ledger.sent, ledger.leased, ledger.dead, ledger.gone], [7, 1, 0, 6]);
      const drops = events.filter((event) => event.kind === 'dead letters dropped');
      assert.equal(
        drops.reduce((sum, { count }) => sum + count, 0),
        5,
      );
      assert.ok(drops.every(({ ids, count }) => ids.length === count));
    },
    { max_age: 10_000, dead_max_messages: 3, dead_max_age: 3_600_000, max_deliveries: 100 },
  );
});

test('a check of the ages of many dead letters gives turns to the event loop', async () => {
  await withMailbox(
    async ({ box, clock, receive }) => {
      const messages = Array.from({ length: 128 }, () => ({ topic: TOPIC, payload: Buffer.from('x') }));
      for (let page = 0; page < 3; page++) {
        await box.send(messages, NEVER);
        const tokens = (await receive()).map(({ token }) => token);
        await box.nack(TOPIC, tokens, { dead: true }, NEVER);
      }
      const over = new AbortController();
      const pass = box.parts.retention.pass(NEVER).finally(() => over.abort());
      let turns = 0;
      for (; !over.signal.aborted; turns++) await clock.settle();
      await pass;
      assert.ok(turns >= 3, `${turns} turns for 3 pages`);
      assert.equal(box.topic(TOPIC).ledger.dead, 384);
    },
    { dead_max_messages: 1000 },
  );
});

test('a policy of a topic replaces the configuration, survives a restart, and can be taken back', async () => {
  await withMailbox(async (mailbox) => {
    const { reopen, send } = mailbox;
    const dto = await mailbox.box.setPolicy(TOPIC, { max_messages: 1 }, NEVER);
    assert.deepEqual([dto.policy.max_messages, dto.policy_set], [1, ['max_messages']]);
    stored(await send('one'));
    await reopen();
    assert.ok('error' in (await send('two')));
    assert.deepEqual(mailbox.box.topic(TOPIC).policy_set, ['max_messages']);
    await mailbox.box.setPolicy(TOPIC, {}, NEVER);
    stored(await send('two'));
  });
});
