/**
 * The metrics of mailbox over `/metrics`: each operation moves its series by the number of its messages, and the ledger
 * of its topic holds after it.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadConfig } from '@ron/config';
import { MAILBOX_LIMITS, type ReceivedMessage, type TopicLedger } from '@ron/proto';
import { bytesOf, eventually, KIB } from '@ron/testkit';
import { metricIn, type Reply } from '@ron/testkit/service';
import { schema } from '@ron/mailbox';
import { Metrics } from '@ron/telemetry';
import { Policies } from '../src/mailbox/topics/policy.ts';
import { Topics } from '../src/mailbox/topics/topics.ts';
import { measureParts } from '../src/metrics.ts';
import { MailboxState } from '../src/queue/mailbox-state.ts';
import { idempotencyHash, SeenKeys } from '../src/queue/seen-keys.ts';
import { AMNESIA, startService, type TestMailbox } from './support.ts';

const base = '/v1/mailbox';
const TOPIC = 'jobs';

type Series = Readonly<Record<string, number>>;

/** All series of mailbox. */
async function scrape(service: TestMailbox): Promise<Series> {
  const { status, text } = await service.send('GET', '/metrics');
  assert.equal(status, 200);
  const lines = text.split('\n').filter((line) => /^(mailbox_|integrity_fail_total)/.test(line));
  const series = lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ')))]);
  assert.equal(new Set(series.map(([name]) => name)).size, series.length, 'no series is there twice');
  return Object.fromEntries(series);
}

class Watched {
  readonly service: TestMailbox;
  #before: Series;

  private constructor(service: TestMailbox, before: Series) {
    this.service = service;
    this.#before = before;
  }

  static async of(service: TestMailbox): Promise<Watched> {
    return new Watched(service, await scrape(service));
  }

  /** The series have moved by exactly these amounts since the last call; those of ages are left out. The ledger holds. */
  async moved(what: string, expected: Series): Promise<void> {
    const after = await scrape(this.service);
    const names = new Set([...Object.keys(this.#before), ...Object.keys(after)]);
    const moves: Record<string, number> = {};
    for (const name of names) {
      const by = (after[name] ?? 0) - (this.#before[name] ?? 0);
      if (by !== 0 && !name.startsWith('mailbox_oldest_seconds')) moves[name] = by;
    }
    assert.deepEqual(moves, expected, what);
    this.#before = after;
    await this.assertLedger(what, after);
  }

  async assertLedger(what: string, series: Series): Promise<void> {
    const { topics } = (await this.service.call('GET', base)).json;
    for (const { topic, ledger } of topics as { topic: string; ledger: TopicLedger }[]) {
      const { sent, acked, ready, delayed, leased, dead, gone } = ledger;
      assert.equal(sent, acked + ready + delayed + leased + dead + gone, `${what}: ${JSON.stringify(ledger)}`);
      for (const [state, count] of Object.entries({ ready, delayed, leased, dead }))
        assert.equal(series[messages(state, topic)], count, `${what}: ${state}`);
    }
  }

  async call(method: string, path: string, body?: object, status = 200): Promise<Reply['json']> {
    const reply = await this.service.call(method, `${base}${path}`, body);
    assert.equal(reply.status, status, reply.text);
    return reply.json;
  }

  async send(...some: object[]): Promise<readonly { readonly error?: string }[]> {
    const all = some.map((each) => ({ topic: TOPIC, payload: '', ...each }));
    return (await this.call('POST', '/send', { messages: all })).results;
  }

  async receive(max: number, request: object = {}): Promise<ReceivedMessage[]> {
    const { messages: received } = await this.call('POST', `/${TOPIC}/receive`, { max, ...request });
    assert.equal(received.length, max);
    return received;
  }

  async settle(op: string, messages: readonly { readonly token: string }[], how: object = {}): Promise<string[]> {
    const tokens = messages.map(({ token }) => token);
    return (await this.call('POST', `/${TOPIC}/${op}`, { tokens, ...how })).results;
  }
}

const messages = (state: string, topic = TOPIC): string => `mailbox_messages{topic="${topic}",state="${state}"}`;
const sent = (result: string, topic = TOPIC): string => `mailbox_sent_total{topic="${topic}",result="${result}"}`;
const settled = (outcome: string): string => `mailbox_settled_total{topic="${TOPIC}",outcome="${outcome}"}`;
const stale = (op: string): string => `mailbox_stale_total{topic="${TOPIC}",op="${op}"}`;
const redelivered = `mailbox_redelivered_total{topic="${TOPIC}"}`;
const dropped = (reason: string): string => `mailbox_dead_dropped_total{reason="${reason}"}`;
const oldest = `mailbox_oldest_seconds{topic="${TOPIC}"}`;

test('[mailbox I-8] each operation moves its series by the number of its messages, and the ledger holds after each', async () => {
  await using service = await startService();
  const mailbox = await Watched.of(service);
  await mailbox.call('PUT', `/${TOPIC}`, { max_messages: 6, max_deliveries: 2 });
  await mailbox.moved('a policy', {});

  await mailbox.send({}, {}, { delay_ms: 3_600_000 }, { idempotency_key: 'k', payload: 'eA==' });
  await mailbox.moved('sends', { [sent('stored')]: 4, [messages('ready')]: 3, [messages('delayed')]: 1 });
  assert.ok((await scrape(service))[oldest]! >= 0);
  await mailbox.send({ idempotency_key: 'k', payload: 'eA==' }, { idempotency_key: 'k', payload: 'eQ==' });
  await mailbox.moved('a duplicate and a conflict', { [sent('duplicate')]: 1, [sent('conflict')]: 1 });
  const results = await mailbox.send({}, {}, {});
  assert.equal(results[2]?.error, 'full');
  await mailbox.moved('a full topic', { [sent('stored')]: 2, [sent('full')]: 1, [messages('ready')]: 2 });

  const [one, two, three] = await mailbox.receive(3, { visibility_ms: 3_600_000 });
  await mailbox.moved('a receive', { [messages('ready')]: -3, [messages('leased')]: 3 });
  assert.deepEqual(await mailbox.settle('extend', [one!], { visibility_ms: 60_000 }), ['ok']);
  await mailbox.moved('an extend', {});
  assert.deepEqual(await mailbox.settle('ack', [one!]), ['ok']);
  await mailbox.moved('an ack', { [settled('acked')]: 1, [messages('leased')]: -1 });
  assert.deepEqual(await mailbox.settle('nack', [two!], { delay_ms: 0 }), ['ok']);
  await mailbox.moved('a nack', { [settled('nacked')]: 1, [messages('leased')]: -1, [messages('ready')]: 1 });

  const again = (await mailbox.receive(3)).find(({ seq }) => seq === two!.seq)!;
  await mailbox.moved('a redelivery', { [redelivered]: 1, [messages('ready')]: -3, [messages('leased')]: 3 });
  for (const op of ['ack', 'nack', 'extend'])
    assert.deepEqual(await mailbox.settle(op, [two!], op === 'extend' ? { visibility_ms: 1000 } : {}), ['stale']);
  await mailbox.moved('stale tokens', { [stale('ack')]: 1, [stale('nack')]: 1, [stale('extend')]: 1 });

  assert.deepEqual(await mailbox.settle('nack', [again]), ['ok']);
  await mailbox.moved('the last nack', {
    [settled('nacked')]: 1,
    [settled('dead')]: 1,
    [messages('leased')]: -1,
    [messages('dead')]: 1,
  });
  assert.deepEqual(await mailbox.settle('nack', [three!], { dead: true }), ['ok']);
  await mailbox.moved('a nack to the dead letters', {
    [settled('nacked')]: 1,
    [settled('dead')]: 1,
    [messages('leased')]: -1,
    [messages('dead')]: 1,
  });
  assert.equal((await mailbox.call('POST', `/${TOPIC}/dlq/replay`, { limit: 1 })).replayed, 1);
  await mailbox.moved('a replay', {
    [settled('replayed')]: 1,
    [sent('stored')]: 1,
    [messages('dead')]: -1,
    [messages('ready')]: 1,
  });
  assert.equal((await mailbox.call('DELETE', `/${TOPIC}/dlq`)).deleted, 1);
  await mailbox.moved('a deletion', { [settled('deleted')]: 1, [messages('dead')]: -1 });
});

test('a lease that times out is counted, and so is the dead letter of the last one', async () => {
  await using service = await startService();
  const mailbox = await Watched.of(service);
  await mailbox.call('PUT', `/${TOPIC}`, { max_deliveries: 1 });
  await mailbox.send({});
  await mailbox.receive(1, { visibility_ms: MAILBOX_LIMITS.visibility_ms_min });
  await eventually('it is dead', async () => (await scrape(service))[messages('dead')] === 1);
  await mailbox.moved('a timeout', {
    [sent('stored')]: 1,
    [settled('timeout')]: 1,
    [settled('dead')]: 1,
    [messages('dead')]: 1,
  });
});

for (const [reason, policy] of [
  ['count', { dead_max_messages: 1 }],
  ['bytes', { dead_max_bytes: 1500 }],
  ['age', { dead_max_age_ms: 1000 }],
] as const) {
  test(`[mailbox I-8] dead letters beyond their ${reason} are dropped, counted and logged`, async () => {
    await using service = await startService();
    const mailbox = await Watched.of(service);
    const payload = bytesOf(1000).toString('base64');
    await mailbox.send({ payload }, { payload }, { payload });
    await mailbox.settle('nack', await mailbox.receive(3), { dead: true });
    await mailbox.moved('dead letters', {
      [sent('stored')]: 3,
      [settled('nacked')]: 3,
      [settled('dead')]: 3,
      [messages('dead')]: 3,
    });
    const left = reason === 'age' ? 0 : 1;
    await mailbox.call('PUT', `/${TOPIC}`, policy);
    await eventually('they are dropped', async () => (await scrape(service))[messages('dead')] === left);
    await mailbox.moved('drops', {
      [dropped(reason)]: 3 - left,
      [settled('dropped')]: 3 - left,
      [messages('dead')]: left - 3,
    });
    const lines = service.lines.filter((line) => line.includes('dead letters dropped'));
    assert.ok(lines.every((line) => line.includes(TOPIC) && line.includes(`"${reason}"`)) && lines.length > 0);
  });
}

test('a send that the disk refuses is counted as failed', async () => {
  await using service = await startService({
    flags: [...AMNESIA, '--amnesia.bytes_max=8MiB', '--mailbox.segment_bytes=4MiB'],
  });
  const mailbox = await Watched.of(service);
  await mailbox.call('PUT', `/${TOPIC}`, {});
  const payload = bytesOf(900 * KIB).toString('base64');
  let stored = 0;
  const body = { messages: [{ topic: TOPIC, payload }] };
  while ((await service.call('POST', `${base}/send`, body)).status === 200) stored += 1;
  await mailbox.moved('a full disk', { [sent('stored')]: stored, [sent('failed')]: 1, [messages('ready')]: stored });
});

test('compaction counts the bytes that it removed', async () => {
  await using service = await startService({ flags: ['--mailbox.segment_bytes=4MiB'] });
  const mailbox = await Watched.of(service);
  const payload = bytesOf(400 * KIB).toString('base64');
  for (let n = 0; n < 8; n += 1) {
    await mailbox.send({ payload }, { payload }, { payload });
    await mailbox.settle('ack', await mailbox.receive(3, { bytes_max: 8 * 1024 * KIB }));
  }
  const { files } = service.mailbox.mailbox.parts.log.segments;
  const written = 24 * 400 * KIB;
  const records_max = 0.01 * written;
  const compacted = async (): Promise<number> => (await scrape(service))['mailbox_compacted_bytes_total']!;
  await eventually('all but the last segment is removed and counted', async () => {
    const removed = await compacted();
    return files.numbers().length === 1 && removed + files.totals().bytes >= written;
  });
  assert.ok((await compacted()) + files.totals().bytes < written + records_max, 'no byte is counted twice');
});

test('[mailbox I-11] idempotency keys that are evicted are counted for their topic', async () => {
  const metrics = new Metrics('mailbox');
  const state = new MailboxState();
  const topics = new Topics({ state, policies: new Policies({ value: loadConfig({ schema, flags: AMNESIA }) }) });
  const seen = new SeenKeys({ per_topic: 100, total: 1000 });
  measureParts(metrics, { measured: () => [], topics, seen });
  // A topic of this name shares its label with the topics beyond 64.
  for (const name of ['other', TOPIC]) topics.found(name, {});
  const [id, b3, until_ms] = [new Uint8Array(16), new Uint8Array(32), 3_600_000];
  for (let n = 0; n < 107; n += 1)
    seen.add(
      { topic: topics.find('other')!.state, hash: idempotencyHash('other', `${n}`), id, seq: n + 1, b3, until_ms },
      0,
    );
  const text = await metrics.text();
  assert.equal(metricIn(text, 'mailbox_seen_evicted_total{topic="other"}'), 7);
  assert.ok(text.includes(`mailbox_seen_evicted_total{topic="${TOPIC}"} 0`));
});

test('[mailbox I-11] topics beyond 64 share the label `other`, and the sums are complete with 256 topics', async () => {
  await using service = await startService({ flags: AMNESIA });
  const mailbox = await Watched.of(service);
  const names = Array.from({ length: MAILBOX_LIMITS.topics }, (_, n) => `t${n}`);
  for (let at = 0; at < names.length; at += 128)
    await mailbox.send(...names.slice(at, at + 128).map((topic) => ({ topic })));
  const refused = await mailbox.send({ topic: 'one_more' }, { topic: 't200' });
  assert.equal(refused[0]?.error, 'full');
  const series = await scrape(service);
  const labels = new Set(Object.keys(series).flatMap((name) => /topic="([^"]*)"/.exec(name)?.[1] ?? []));
  assert.equal(labels.size, 65);
  assert.deepEqual(labels, new Set([...names.slice(0, 64), 'other']));
  assert.equal(series[sent('stored', 't63')], 1);
  assert.equal(series[sent('stored', 'other')], names.length - 64 + 1);
  assert.equal(series[sent('full', 'other')], 1);
  assert.equal(series[messages('ready', 'other')], names.length - 64 + 1);
});

test('[mailbox I-11] a topic keeps its label when the creation of an older one fails', async () => {
  await using service = await startService({ flags: [...AMNESIA, '--amnesia.bytes_max=8MiB'] });
  const mailbox = await Watched.of(service);
  await mailbox.send(...Array.from({ length: 63 }, (_, n) => ({ topic: `t${n}` })));
  const { counts } = service.mailbox.mailbox.parts.topics;
  const { topics } = service.mailbox.mailbox.parts;
  // In flight: it has the 64th label until its send fails.
  const failing = topics.forSend('failing', true)!;
  await mailbox.send({ topic: 'late' });
  assert.equal((await scrape(service))[sent('stored', 'other')], 1);
  topics.forgetUnused(failing);
  assert.equal([...counts.entries()].length, 64);
  const series = await scrape(service);
  assert.deepEqual([series[sent('stored', 'other')], series[sent('stored', 'late')]], [1, undefined]);
  await mailbox.send({ topic: 'next' });
  assert.equal((await scrape(service))[sent('stored', 'next')], 1, 'the label is free again');
});

test('the prove task reads every record over HTTP and agrees with the topics', async () => {
  await using service = await startService();
  const mailbox = await Watched.of(service);
  await mailbox.send({ payload: bytesOf(1000).toString('base64') }, {}, {});
  const received = await mailbox.receive(3);
  await mailbox.settle('ack', received.slice(0, 1));
  await mailbox.settle('nack', received.slice(1, 2), { dead: true });
  const started = await service.call('POST', '/admin/prove');
  assert.equal(started.status, 202, started.text);
  let task: Reply['json'];
  await eventually('it ends', async () => {
    task = (await service.call('GET', `/admin/tasks/${started.json.id}`)).json;
    return task.state !== 'running';
  });
  assert.equal(task.state, 'done', JSON.stringify(task));
  const { report, done_bytes, total_bytes } = task.progress;
  assert.ok(done_bytes > 1000 && done_bytes === total_bytes, JSON.stringify(task));
  assert.deepEqual([report.ok, report.damaged, report.problem], [true, 0, undefined]);
  assert.deepEqual(report.topics, [{ topic: TOPIC, sent: 3, acked: 1, waiting: 1, dead: 1, gone: 0 }]);
});
