/** Receives: leases, limits of the answer, long polls, order, keys. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BATCH_MEDIA_TYPE } from '@ron/proto';
import { assertRefusal } from '@ron/testkit/service';
import { newTopic, type Http } from './target.ts';

const payloads = (messages: readonly { readonly payload: string }[]): string[] =>
  messages.map(({ payload }) => payload);

export function receivingContract(http: () => Http): void {
  const sendAll = async (topic: string, all: readonly string[], more: object = {}): Promise<void> => {
    await http().send(...all.map((payload) => ({ topic, payload, ...more })));
  };

  test('a topic that does not exist has no messages, and a request without a body receives one', async () => {
    const topic = newTopic();
    assert.deepEqual(await http().receive(topic), []);
    await sendAll(topic, ['a', 'b']);
    const reply = await http().call('POST', `/${topic}/receive`);
    assert.equal(reply.status, 200, reply.text);
    assert.equal(reply.json.messages.length, 1);
    assert.equal(reply.headers['cache-control'], 'no-store');
  });

  test('[mailbox I-3] a leased message is given to no other receiver', async () => {
    const topic = newTopic();
    await sendAll(
      topic,
      Array.from({ length: 40 }, (_, index) => `m${index}`),
    );
    const all = await Promise.all(Array.from({ length: 10 }, () => http().receive(topic, { max: 5 })));
    const ids = all.flat().map(({ id }) => id);
    assert.equal(ids.length, 40);
    assert.equal(new Set(ids).size, 40);
    assert.deepEqual(await http().receive(topic), []);
    await http().assertLedger(topic, { sent: 40, leased: 40 });
  });

  test('[mailbox I-3] [mailbox I-7] a message whose visibility ended is delivered again, with a new token', async () => {
    const topic = newTopic();
    await sendAll(topic, ['a']);
    const first = await http().take(topic, { visibility_ms: 1000 });
    const second = await http().take(topic, { wait_ms: 20_000 });
    assert.equal(second.id, first.id);
    assert.deepEqual([second.delivery, second.attempts], [2, 2]);
    assert.notEqual(second.token, first.token);
    assert.deepEqual(await http().settle('ack', topic, [first.token]), ['stale']);
    assert.deepEqual(await http().settle('ack', topic, [second.token]), ['ok']);
  });

  test('[mailbox I-6] messages are delivered in the order of their sends', async () => {
    const topic = newTopic();
    const all = Array.from({ length: 100 }, (_, index) => `m${index}`);
    await sendAll(topic, all.slice(0, 50));
    await sendAll(topic, all.slice(50));
    const received: string[] = [];
    while (received.length < 100) received.push(...payloads(await http().receive(topic, { max: 7 })));
    assert.deepEqual(received, all);
  });

  test('[mailbox I-6] of one key, one message at a time and in order; other keys pass', async () => {
    const topic = newTopic();
    await sendAll(topic, ['a1', 'a2'], { key: 'a' });
    await sendAll(topic, ['b1', 'b2'], { key: 'b' });
    await sendAll(topic, ['free']);
    const first = await http().receive(topic, { max: 10 });
    assert.deepEqual(payloads(first), ['a1', 'b1', 'free']);
    assert.deepEqual(await http().receive(topic, { max: 10 }), []);
    await http().assertLedger(topic, { sent: 5, ready: 2, leased: 3 });
    await http().settle('nack', topic, [first[0]!.token], { delay_ms: 0 });
    assert.deepEqual(
      payloads(await http().receive(topic, { max: 10, wait_ms: 5000 })),
      ['a1'],
      'a2 does not overtake it',
    );
    await http().settle('ack', topic, [first[1]!.token]);
    assert.deepEqual(payloads(await http().receive(topic, { max: 10 })), ['b2']);
  });

  test('[mailbox I-6] a dead letter releases its key', async () => {
    const topic = newTopic();
    await sendAll(topic, ['a1', 'a2'], { key: 'a' });
    const { token } = await http().take(topic);
    await http().settle('nack', topic, [token], { dead: true });
    assert.equal((await http().take(topic)).payload, 'a2');
  });

  test('max and bytes_max limit an answer; one message always fits', async () => {
    const topic = newTopic();
    await sendAll(
      topic,
      Array.from({ length: 6 }, () => 'x'.repeat(1000)),
    );
    assert.equal((await http().receive(topic, { max: 2 })).length, 2);
    assert.equal((await http().receive(topic, { max: 10, bytes_max: 2500 })).length, 2);
    assert.equal((await http().receive(topic, { max: 10, bytes_max: 1 })).length, 1);
    assert.equal((await http().receive(topic, { max: 10 })).length, 1);
  });

  test('an answer carries 8 MiB of payloads, framed and in JSON', async () => {
    const topic = newTopic();
    const payload = Buffer.alloc(1024 * 1024, 'large');
    for (let index = 0; index < 9; index += 1) await http().sendFramed([{ head: { topic }, payload }]);
    const request = { max: 128, bytes_max: 8 * 1024 * 1024, visibility_ms: 60_000 };
    const framed = await http().receiveFramed(topic, request);
    assert.equal(framed.length, 8);
    assert.ok(framed.every((item) => payload.equals(item.payload)));
    const tokens = framed.map(({ head }) => (head as { token: string }).token);
    await http().settle('nack', topic, tokens, { delay_ms: 0 });
    const reply = await http().call('POST', `/${topic}/receive`, { ...request, wait_ms: 5000 });
    const { messages } = reply.json as { messages: { payload: string }[] };
    assert.equal(messages.length, 8);
    assert.ok(messages.every((message) => payload.equals(Buffer.from(message.payload, 'base64'))));
  });

  test('[mailbox I-12] a long poll is answered by the first send, in the order of the polls', async () => {
    const topic = newTopic();
    const polls = [0, 1, 2].map((index) => ({ index, answer: http().receive(topic, { wait_ms: 20_000, max: 10 }) }));
    // The polls wait: a receive without a wait finds nothing.
    assert.deepEqual(await http().receive(topic), []);
    const answered = new Set<number>();
    for (const { index, answer } of polls) void answer.then(() => answered.add(index));
    for (const payload of ['a', 'b', 'c']) {
      await sendAll(topic, [payload]);
      const messages = await Promise.race(
        polls.filter(({ index }) => !answered.has(index)).map(({ answer }) => answer),
      );
      assert.deepEqual(payloads(messages), [payload]);
    }
    assert.equal((await Promise.all(polls.map(({ answer }) => answer))).flat().length, 3);
  });

  test('a long poll that finds nothing is answered empty when its time is over', async () => {
    const began_ms = performance.now();
    assert.deepEqual(await http().receive(newTopic(), { wait_ms: 300 }), []);
    assert.ok(performance.now() - began_ms >= 290);
  });

  test('Accept chooses the form of the answer', async () => {
    const topic = newTopic();
    const typeOf = async (accept: string | undefined): Promise<string | undefined> => {
      const headers: Record<string, string> = accept === undefined ? {} : { accept };
      const reply = await http().call('POST', `/${topic}/receive`, {}, headers);
      assert.equal(reply.status, 200, reply.text);
      return reply.headers['content-type']?.split(';')[0];
    };
    const json = 'application/json';
    for (const accept of [
      undefined,
      '*/*',
      json,
      'application/*',
      'text/html, */*;q=0.1',
      `${BATCH_MEDIA_TYPE};q=0, */*`,
    ])
      assert.equal(await typeOf(accept), json, String(accept));
    for (const accept of [
      BATCH_MEDIA_TYPE,
      `${json};q=0.5, ${BATCH_MEDIA_TYPE}`,
      `*/*, ${BATCH_MEDIA_TYPE.toUpperCase()}`,
    ])
      assert.equal(await typeOf(accept), BATCH_MEDIA_TYPE, accept);
    const refused = await http().call('POST', `/${topic}/receive`, {}, { accept: 'text/html' });
    assertRefusal(refused, 406, 'not_acceptable');
  });

  test('peek shows visible messages from the front and leases nothing', async () => {
    const topic = newTopic();
    await sendAll(topic, ['a', 'b', 'c']);
    for (let round = 0; round < 2; round += 1) {
      const { messages } = await http().ok<{ messages: { payload: string; attempts: number }[] }>(
        'GET',
        `/${topic}/peek?limit=2`,
      );
      assert.deepEqual(
        messages.map(({ payload }) => Buffer.from(payload, 'base64').toString()),
        ['a', 'b'],
      );
      assert.ok(messages.every((message) => !('token' in message) && message.attempts === 0));
    }
    await http().assertLedger(topic, { sent: 3, ready: 3 });
    assertRefusal(await http().call('GET', `/${newTopic()}/peek`), 404, 'not_found');
  });
}
