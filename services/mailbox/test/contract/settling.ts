/** Acks, nacks and extends: fences, backoff, dead letters, replay. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { DeadPageDto } from '@ron/proto';
import { eventually } from '@ron/testkit';
import { assertRefusal } from '@ron/testkit/service';
import { newTopic, type Http } from './target.ts';

const OPS = ['ack', 'nack', 'extend'] as const;

export function settlingContract(http: () => Http): void {
  /** A leased message of a new topic. */
  const leased = async (request: object = {}): Promise<{ topic: string; token: string; seq: number; id: string }> => {
    const topic = newTopic();
    await http().put(topic, 'payload');
    return { topic, ...(await http().take(topic, request)) };
  };
  const deadOf = (topic: string, query = ''): Promise<DeadPageDto> => http().ok('GET', `/${topic}/dlq${query}`);
  /** Dead letters with these payloads. */
  const makeDead = async (topic: string, payloads: readonly string[]): Promise<void> => {
    await http().send(...payloads.map((payload) => ({ topic, payload })));
    const messages = await http().receive(topic, { max: 128 });
    const tokens = messages.map(({ token }) => token);
    await http().settle('nack', topic, tokens, { dead: true, error: 'no use' });
  };

  test('[mailbox I-4] an acked message is never delivered again', async () => {
    const { topic, token } = await leased({ visibility_ms: 1000 });
    assert.deepEqual(await http().settle('ack', topic, [token]), ['ok']);
    await http().assertLedger(topic, { sent: 1, acked: 1 });
    assert.deepEqual(await http().receive(topic, { wait_ms: 1500 }), [], 'not after its visibility either');
    assert.deepEqual(await http().settle('ack', topic, [token]), ['stale']);
  });

  test('[mailbox I-5] only the token of the latest delivery settles; others are stale and change nothing', async () => {
    const { topic, token: old } = await leased();
    await http().settle('nack', topic, [old], { delay_ms: 0 });
    const { token } = await http().take(topic);
    for (const op of OPS) assert.deepEqual(await http().settle(op, topic, [old]), ['stale'], op);
    await http().assertLedger(topic, { sent: 1, leased: 1 });
    assert.deepEqual(await http().settle('ack', topic, [token]), ['ok']);
    for (const op of OPS) assert.deepEqual(await http().settle(op, topic, [token]), ['stale'], op);
  });

  test('[mailbox I-5] tokens that were never given out, and tokens of another topic, are unknown', async () => {
    const { topic, token } = await leased();
    const other = await leased();
    const flipped = (token[0] === 'A' ? 'B' : 'A') + token.slice(1);
    for (const op of OPS) {
      const forged = ['', 'x', '\u0000', 'A'.repeat(128), `${token}=`, `${token}A`, token.slice(0, -2), 'é'];
      assert.ok(
        (await http().settle(op, topic, forged)).every((result) => result === 'unknown'),
        op,
      );
      assert.deepEqual(await http().settle(op, other.topic, [token]), ['unknown'], 'of another topic');
      assert.deepEqual(await http().settle(op, newTopic(), [token]), ['unknown'], 'of no topic');
      assert.notEqual((await http().settle(op, topic, [flipped]))[0], 'ok');
    }
    await http().assertLedger(topic, { sent: 1, leased: 1 });
    await http().assertLedger(other.topic, { sent: 1, leased: 1 });
    const mixed = await http().settle('ack', topic, ['x', token, other.token, token]);
    assert.deepEqual([mixed[0], mixed[1], mixed[2]], ['unknown', 'ok', 'unknown']);
    assert.ok(mixed[3] === 'ok' || mixed[3] === 'stale', 'a repeated token settles once');
    await http().assertLedger(topic, { sent: 1, acked: 1 });
  });

  test('[mailbox I-7] a nack returns the message: at once, after a delay, or after a backoff', async () => {
    const { topic, token, id } = await leased();
    assert.deepEqual(await http().settle('nack', topic, [token], { delay_ms: 0, error: 'try again' }), ['ok']);
    const second = await http().take(topic);
    assert.deepEqual([second.id, second.delivery, second.attempts], [id, 2, 2]);
    await http().settle('nack', topic, [second.token], { delay_ms: 3_600_000 });
    await http().assertLedger(topic, { sent: 1, delayed: 1 });
    const backoff = await leased();
    await http().settle('nack', backoff.topic, [backoff.token]);
    assert.equal((await http().take(backoff.topic, { wait_ms: 20_000 })).id, backoff.id);
  });

  test('an extend leases the message for longer, even after its lease has ended', async () => {
    const { topic, token } = await leased({ visibility_ms: 1000 });
    assert.deepEqual(await http().settle('extend', topic, [token], { visibility_ms: 60_000 }), ['ok']);
    assert.deepEqual(await http().receive(topic, { wait_ms: 1500 }), [], 'beyond the first visibility');
    assert.deepEqual(await http().settle('ack', topic, [token]), ['ok']);
  });

  test('[mailbox I-7] after max_deliveries failures a message is a dead letter with reason, attempts and last error', async () => {
    const topic = newTopic();
    await http().ok('PUT', `/${topic}`, { max_deliveries: 2 });
    const { id, seq } = await http().put(topic, 'poison', { headers: { a: 'b' }, key: 'k' });
    for (const error of ['first', 'second ü']) {
      const { token } = await http().take(topic);
      await http().settle('nack', topic, [token], { delay_ms: 0, error });
    }
    assert.deepEqual(await http().receive(topic), []);
    await http().assertLedger(topic, { sent: 1, dead: 1 });
    const { dead, next } = await deadOf(topic);
    assert.equal(next, undefined);
    const { sent_ms, dead_ms, b3, ...letter } = dead[0]!;
    assert.deepEqual(letter, {
      id,
      seq,
      reason: 'max_deliveries',
      attempts: 2,
      error: 'second ü',
      key: 'k',
      headers: { a: 'b' },
      bytes: 6,
    });
    assert.ok(sent_ms <= dead_ms && b3.startsWith('b3:'));
  });

  test('[mailbox I-7] a delivery that times out for the last time makes a dead letter', async () => {
    const topic = newTopic();
    await http().ok('PUT', `/${topic}`, { max_deliveries: 1 });
    await http().put(topic, 'slow');
    await http().take(topic, { visibility_ms: 1000 });
    assert.deepEqual(await http().receive(topic, { wait_ms: 1500 }), []);
    await eventually('it is a dead letter', async () => (await deadOf(topic)).dead.length === 1);
    await http().assertLedger(topic, { sent: 1, dead: 1 });
    assert.equal((await deadOf(topic)).dead[0]!.reason, 'max_deliveries');
  });

  test('[mailbox I-7] a message older than max_age is a dead letter', async () => {
    const topic = newTopic();
    await http().ok('PUT', `/${topic}`, { max_age_ms: 1000 });
    await http().put(topic, 'old');
    while ((await http().topic(topic)).ledger.dead === 0) await http().receive(newTopic(), { wait_ms: 200 });
    const [letter] = (await deadOf(topic)).dead;
    assert.equal(letter!.reason, 'expired');
    assert.ok(letter!.dead_ms - letter!.sent_ms >= 1000, `${letter!.dead_ms - letter!.sent_ms} ms`);
    await http().assertLedger(topic, { sent: 1, dead: 1 });
  });

  test('the error of a nack is cut after 1 KiB, between characters', async () => {
    const topic = newTopic();
    await http().put(topic, 'x');
    const { token } = await http().take(topic);
    await http().settle('nack', topic, [token], { dead: true, error: `x${'ü'.repeat(2000)}` });
    assert.equal((await deadOf(topic)).dead[0]!.error, `x${'ü'.repeat(511)}`);
  });

  test('dead letters are listed in pages', async () => {
    const topic = newTopic();
    await makeDead(topic, ['a', 'b', 'c', 'd', 'e']);
    const seqs: number[] = [];
    for (let after: number | undefined; ;) {
      const page = await deadOf(topic, `?limit=2${after === undefined ? '' : `&after=${after}`}`);
      assert.ok(page.dead.length <= 2);
      seqs.push(...page.dead.map(({ seq }) => seq));
      if (page.next === undefined) break;
      after = page.next;
    }
    assert.equal(seqs.length, 5);
    assert.deepEqual(
      seqs,
      seqs.toSorted((a, b) => a - b),
    );
    assertRefusal(await http().call('GET', `/${newTopic()}/dlq`), 404, 'not_found');
  });

  test('[mailbox I-8] a replayed dead letter is a new message that names it', async () => {
    const topic = newTopic();
    await makeDead(topic, ['a', 'b', 'c']);
    const { dead } = await deadOf(topic);
    const replayed = await http().ok('POST', `/${topic}/dlq/replay`, { seqs: [dead[1]!.seq, 999_999_999] });
    assert.deepEqual(replayed, { replayed: 1, left: 2 });
    const message = await http().take(topic);
    assert.deepEqual([message.payload, message.attempts, message.replay_of], ['b', 1, dead[1]!.id]);
    assert.ok(message.seq > dead[2]!.seq && message.id !== dead[1]!.id);
    await http().assertLedger(topic, { sent: 4, leased: 1, dead: 2, gone: 1 });
    assert.deepEqual(await http().ok('POST', `/${topic}/dlq/replay`, { limit: 1 }), { replayed: 1, left: 1 });
    assert.equal((await http().take(topic)).payload, 'a', 'the oldest');
    const all = await http().call('POST', `/${topic}/dlq/replay`);
    assert.deepEqual(all.json, { replayed: 1, left: 0 });
    assert.deepEqual(await http().ok('POST', `/${topic}/dlq/replay`, {}), { replayed: 0, left: 0 });
  });

  test('[mailbox I-8] deleted dead letters are gone, and counted', async () => {
    const topic = newTopic();
    await makeDead(topic, ['a', 'b', 'c', 'd']);
    const { dead } = await deadOf(topic);
    const path = `/${topic}/dlq`;
    assert.deepEqual(await http().ok('DELETE', `${path}?seqs=${dead[3]!.seq},${dead[0]!.seq}`), {
      deleted: 2,
      left: 2,
    });
    assert.deepEqual(await http().ok('DELETE', `${path}?limit=1`), { deleted: 1, left: 1 });
    assert.deepEqual(
      (await deadOf(topic)).dead.map(({ seq }) => seq),
      [dead[2]!.seq],
    );
    assert.deepEqual(await http().ok('DELETE', path), { deleted: 1, left: 0 });
    await http().assertLedger(topic, { sent: 4, gone: 4 });
    assertRefusal(await http().call('DELETE', `/${newTopic()}/dlq`), 404, 'not_found');
  });
}
