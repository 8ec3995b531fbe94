/** The client of mailbox against the service. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { addressOf, AnswerError, MailboxClient } from '@ron/client';
import { nodeFetch } from '@ron/client/node';
import { isRonError } from '@ron/kernel';
import { eventually } from '@ron/testkit';
import { startMailbox } from '@ron/testkit/service';

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const text = (payload: Uint8Array): string => new TextDecoder().decode(payload);

// Not in a hook: `after` would end it with the hook.
const service = await startMailbox({ after });

test('a message travels: send, receive, ack; and back: nack, dead letter, replay', async () => {
  const { url, token } = service;
  for (const fetch of [undefined, nodeFetch()]) {
    const mailbox = new MailboxClient({ url, capability: token, ...(fetch !== undefined && { fetch }) });
    const topic = fetch === undefined ? 'jobs.platform' : 'jobs.node';
    const headers = { 'content-type': 'text/plain', note: 'ü 日本' };
    const message = { topic, payload: bytes('one'), idempotency_key: 'k', headers };
    const [sent, repeated] = await mailbox.send([
      message,
      message,
      { topic, payload: new Uint8Array(200_000).fill(7) },
    ]);
    assert.ok('seq' in sent! && 'seq' in repeated! && repeated.duplicate && repeated.id === sent.id);
    assert.deepEqual(
      (await mailbox.peek(topic, 1)).map(({ payload }) => text(payload)),
      ['one'],
    );
    const [first, second] = await mailbox.receive(topic, { max: 2, visibility_ms: 60_000 });
    assert.equal(text(first!.payload), 'one');
    assert.deepEqual(first!.headers, headers);
    assert.deepEqual([first!.id, first!.seq, first!.b3], [sent.id, sent.seq, addressOf(message.payload)]);
    assert.equal(second!.payload.length, 200_000);
    assert.deepEqual(await mailbox.extend(topic, [first!.token, 'x'], 5000), ['ok', 'unknown']);
    assert.deepEqual(await mailbox.ack(topic, [first!.token]), ['ok']);
    assert.deepEqual(await mailbox.ack(topic, [first!.token]), ['stale']);
    assert.deepEqual(await mailbox.nack(topic, [second!.token], { dead: true, error: 'no' }), ['ok']);
    const { dead } = await mailbox.deadLetters(topic, { limit: 5 });
    assert.deepEqual([dead[0]!.id, dead[0]!.error], [second!.id, 'no']);
    assert.deepEqual(await mailbox.replayDead(topic, { seqs: [dead[0]!.seq] }), { replayed: 1, left: 0 });
    const [again] = await mailbox.receive(topic);
    assert.equal(again!.replay_of, second!.id);
    await mailbox.nack(topic, [again!.token], { dead: true });
    assert.deepEqual(await mailbox.deleteDead(topic), { deleted: 1, left: 0 });
    const { ledger } = await mailbox.topic(topic);
    assert.deepEqual([ledger.sent, ledger.acked, ledger.gone], [3, 1, 2]);
    assert.ok((await mailbox.topics()).some((each) => each.topic === topic));
    assert.equal((await mailbox.setPolicy(topic, { max_deliveries: 3 })).policy.max_deliveries, 3);
  }
});

test('a long poll may take longer than the deadline of other calls', async () => {
  const { url, token } = service;
  const mailbox = new MailboxClient({ url, capability: token, deadline_ms: 1000, fetch: nodeFetch() });
  const waited = mailbox.receive('later', { wait_ms: 20_000 });
  await mailbox.send([{ topic: 'later', delay_ms: 1500, payload: bytes('at last') }]);
  assert.equal(text((await waited)[0]!.payload), 'at last');
});

test('an aborted receive gives its messages back', async () => {
  const { url, token } = service;
  const mailbox = new MailboxClient({ url, capability: token, fetch: nodeFetch() });
  const leaving = new AbortController();
  const waited = mailbox.receive('shared', { wait_ms: 20_000 }, { signal: leaving.signal });
  leaving.abort(new Error('enough'));
  await assert.rejects(waited, /enough/);
  await mailbox.send([{ topic: 'shared', payload: bytes('x') }]);
  await eventually('the message is received', async () => (await mailbox.receive('shared')).length === 1);
});

test('refusals carry the code of the service; a bad topic is refused here', async () => {
  const { url, token } = service;
  const mailbox = new MailboxClient({ url, capability: token });
  await assert.rejects(mailbox.topic('nothing'), (error) => error instanceof AnswerError && error.code === 'not_found');
  const many = Array.from({ length: 129 }, () => ({ topic: 'a', payload: new Uint8Array(0) }));
  await assert.rejects(mailbox.send(many), (error) => error instanceof AnswerError && error.http_status === 400);
  for (const topic of ['..', 'send', 'a/b', '', 'A'])
    await assert.rejects(mailbox.ack(topic, ['x']), (error) => isRonError(error, 'validation'), topic);
});

test('a check of the log runs as a task', async () => {
  const { url, token } = service;
  const mailbox = new MailboxClient({ url, capability: token });
  const { id, kind } = await mailbox.startProve();
  assert.equal(kind, 'prove');
  await eventually('its end', async () => (await mailbox.task(id)).state !== 'running');
});
