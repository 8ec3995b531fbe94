/** Sends: both bodies, single messages, idempotency keys, refusals of single messages. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isUlid, type SendResult } from '@ron/proto';
import { assertRefusal } from '@ron/testkit/service';
import { b3Of, base64, newTopic, type Http } from './target.ts';

export function sendingContract(http: () => Http): void {
  test('[mailbox I-1] a JSON batch is stored: id, sequence number and hash of each message, in order', async () => {
    const [a, b] = [newTopic(), newTopic()];
    const results = await http().send(
      { topic: a, payload: 'one' },
      { topic: b, payload: '' },
      { topic: a, payload: 'two' },
    );
    const seqs = results.map((result) => ('error' in result ? assert.fail(result.detail) : result.seq));
    for (const [index, payload] of ['one', '', 'two'].entries()) {
      const result = results[index]!;
      assert.ok('seq' in result && isUlid(result.id), JSON.stringify(result));
      assert.equal(result.duplicate, false);
      assert.equal(result.b3, b3Of(payload));
    }
    assert.ok(seqs[0]! < seqs[1]! && seqs[1]! < seqs[2]!, String(seqs));
    const received = await http().receive(a, { max: 10 });
    assert.deepEqual(
      received.map(({ id, seq, payload }) => [id, seq, payload]),
      [0, 2].map((index) => [(results[index] as { id: string }).id, seqs[index], index === 0 ? 'one' : 'two']),
    );
  });

  test('[mailbox I-11] with `ordered=1` the messages behind one that is refused are refused too, in each topic', async () => {
    const [small, other] = [newTopic(), newTopic()];
    await http().ok('PUT', `/${small}`, { max_bytes: 1024 });
    const [large, tiny] = [base64('x'.repeat(1000)), base64('x')];
    const messages = [
      { topic: small, payload: large },
      { topic: small, payload: large },
      { topic: small, payload: tiny },
      { topic: other, payload: tiny },
    ];
    const { results } = await http().ok<{ results: SendResult[] }>('POST', '/send?ordered=1', { messages });
    const errors = results.map((result) => ('error' in result ? result.error : 'stored'));
    assert.deepEqual(errors, ['stored', 'full', 'full', 'stored']);
    assertRefusal(await http().call('POST', '/send?ordered=yes', { messages }), 400, 'validation');
  });

  test('a framed batch is stored, with payloads of any bytes', async () => {
    const topic = newTopic();
    const every = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
    const large = Buffer.alloc(100_000, 'ab');
    const reply = await http().sendFramed(
      [every, large, Buffer.alloc(0)].map((payload) => ({ head: { topic }, payload })),
    );
    assert.equal(reply.status, 200, reply.text);
    assert.deepEqual(
      reply.json.results.map(({ b3 }: { b3: string }) => b3),
      [every, large, Buffer.alloc(0)].map(b3Of),
    );
    const items = await http().receiveFramed(topic, { max: 3 });
    assert.deepEqual(
      items.map(({ payload }) => Buffer.from(payload)),
      [every, large, Buffer.alloc(0)],
    );
  });

  test('the fields of a message arrive as they were sent', async () => {
    const topic = newTopic();
    const id = '01J9ZK3Q7BC4D8WZ1V00A7K2M4';
    const headers = { 'content-type': 'text/plain', 'x-note': 'grüße 日本 \u{1f600}', constructor: 'x' };
    const sent = await http().put(topic, 'body', { id, key: 'schlüssel', idempotency_key: 'k1', headers });
    assert.equal(sent.id, id);
    const [message] = await http().receive(topic);
    assert.equal(message!.id, id);
    assert.equal(message!.key, 'schlüssel');
    assert.deepEqual(message!.headers, headers);
    assert.equal(message!.b3, b3Of('body'));
    assert.equal(message!.delivery, 1);
    assert.equal(message!.attempts, 1);
    assert.ok(Math.abs(message!.sent_ms - Date.now()) < 60_000);
    assert.ok(!('replay_of' in message!));
    // An id is a label: a second message may have the same one.
    assert.equal((await http().put(topic, 'other', { id })).duplicate, false);
  });

  test('a single message has the body, key, delay and media type of its request', async () => {
    const topic = newTopic();
    const headers = { 'Idempotency-Key': 'single', 'Ron-Key': 'k', 'Content-Type': 'image/png' };
    const first = await http().call('POST', `/${topic}`, Buffer.from([0, 255, 1]), headers);
    assert.equal(first.status, 201, first.text);
    assert.equal(first.json.duplicate, false);
    const again = await http().call('POST', `/${topic}`, Buffer.from([0, 255, 1]), headers);
    assert.equal(again.status, 200);
    assert.deepEqual(again.json, { ...first.json, duplicate: true });
    const conflict = await http().call('POST', `/${topic}`, 'another body', headers);
    assertRefusal(conflict, 409, 'conflict');
    assert.equal((conflict.problem as unknown as { id: string }).id, first.json.id);
    const [item] = await http().receiveFramed(topic);
    assert.deepEqual(Buffer.from(item!.payload), Buffer.from([0, 255, 1]));
    const head = item!.head as { key: string; headers: object };
    assert.equal(head.key, 'k');
    assert.deepEqual(head.headers, { 'content-type': 'image/png' });
    const empty = await http().call('POST', `/${topic}`);
    assert.equal(empty.status, 201, empty.text);
    assert.equal(empty.json.b3, b3Of(''));
  });

  test('Ron-Delay is in seconds: the message is delayed until then', async () => {
    const topic = newTopic();
    assert.equal((await http().call('POST', `/${topic}`, 'later', { 'Ron-Delay': '3600.5' })).status, 201);
    await http().assertLedger(topic, { sent: 1, delayed: 1 });
    assert.deepEqual(await http().receive(topic), []);
    assert.equal((await http().call('POST', `/${topic}`, 'now', { 'Ron-Delay': '0' })).status, 201);
    assert.equal((await http().take(topic)).payload, 'now');
  });

  test('a delayed message becomes visible', async () => {
    const topic = newTopic();
    await http().put(topic, 'soon', { delay_ms: 300 });
    assert.equal((await http().take(topic)).payload, 'soon');
  });

  test('[mailbox I-2] an idempotency key has one message: the first id, in the same batch and later', async () => {
    const topic = newTopic();
    const message = { topic, payload: 'x', idempotency_key: 'once' };
    const [first, second] = await http().send(message, message);
    assert.ok(first !== undefined && 'seq' in first && !first.duplicate, JSON.stringify(first));
    assert.deepEqual(second, { ...first, duplicate: true });
    assert.deepEqual((await http().send(message))[0], { ...first, duplicate: true });
    await http().assertLedger(topic, { sent: 1, ready: 1 });
    const { token } = await http().take(topic);
    await http().settle('ack', topic, [token]);
    assert.deepEqual((await http().send(message))[0], { ...first, duplicate: true }, 'after the ack as well');
    await http().assertLedger(topic, { sent: 1, acked: 1 });
    assert.equal((await http().topic(topic)).keys, 1);
  });

  test('[mailbox I-2] many concurrent sends of one key store one message', async () => {
    const topic = newTopic();
    const sends = Array.from({ length: 16 }, () => http().put(topic, 'x', { idempotency_key: 'same' }));
    const results = await Promise.all(sends);
    assert.equal(new Set(results.map(({ id }) => id)).size, 1);
    assert.equal(results.filter(({ duplicate }) => !duplicate).length, 1);
    await http().assertLedger(topic, { sent: 1, ready: 1 });
  });

  test('[mailbox I-2] the same key with another body is a conflict, which stops no other message', async () => {
    const [topic, other] = [newTopic(), newTopic()];
    const first = await http().put(topic, 'a', { idempotency_key: 'k' });
    const results = await http().send(
      { topic, payload: 'b', idempotency_key: 'k' },
      { topic, payload: 'c' },
      { topic: other, payload: 'b', idempotency_key: 'k' },
    );
    assert.ok('error' in results[0]! && results[0].error === 'conflict' && results[0].id === first.id);
    assert.ok('seq' in results[1]! && 'seq' in results[2]!, 'keys belong to their topic');
    await http().assertLedger(topic, { sent: 2, ready: 2 });
  });

  test('[mailbox I-11] a full topic refuses: 507 for a single message, an error in a batch, and others are stored', async () => {
    const [topic, other] = [newTopic(), newTopic()];
    await http().ok('PUT', `/${topic}`, { max_messages: 2 });
    const results = await http().send(...['a', 'b', 'c'].map((payload) => ({ topic, payload })), { topic: other });
    assert.deepEqual(
      results.map((result) => ('error' in result ? result.error : 'stored')),
      ['stored', 'stored', 'full', 'stored'],
    );
    assertRefusal(await http().call('POST', `/${topic}`, 'd'), 507, 'storage_full');
    const { token } = await http().take(topic);
    await http().settle('ack', topic, [token]);
    assert.equal((await http().call('POST', `/${topic}`, 'd')).status, 201, 'an ack makes room');
    const bytes = newTopic();
    await http().ok('PUT', `/${bytes}`, { max_bytes: 1024 });
    assert.equal((await http().call('POST', `/${bytes}`, 'x'.repeat(1024))).status, 201);
    assertRefusal(await http().call('POST', `/${bytes}`, 'x'), 507, 'storage_full');
  });

  test('a batch of 128 messages and 2 MiB is stored', async () => {
    const topic = newTopic();
    const payload = 'x'.repeat(15_000);
    const results = await http().send(...Array.from({ length: 100 }, () => ({ topic, payload })));
    assert.equal(results.filter((result) => 'seq' in result).length, 100);
    const small = await http().send(...Array.from({ length: 128 }, () => ({ topic })));
    assert.equal(small.filter((result) => 'seq' in result).length, 128);
    const whole = { head: { topic }, payload: Buffer.alloc(1024 * 1024) };
    assert.equal((await http().sendFramed([whole])).status, 200, 'a message of 1 MiB');
    const messages = [{ topic, payload: base64(Buffer.alloc(1024 * 1024)) }];
    assert.equal((await http().call('POST', '/send', { messages })).status, 200, 'the same in JSON');
  });
}
