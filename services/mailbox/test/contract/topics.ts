/** Topics: names, policies, statistics, capabilities for some of them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TopicDto } from '@ron/proto';
import { assertRefusal } from '@ron/testkit/service';
import { base64, Http, newTopic } from './target.ts';

export function topicsContract(http: () => Http): void {
  test('a topic is made by its first send, and listed with its counts and ages', async () => {
    const topic = newTopic();
    assertRefusal(await http().call('GET', `/${topic}`), 404, 'not_found');
    await http().send({ topic, payload: '12345' }, { topic, payload: '678' }, { topic, delay_ms: 3_600_000 });
    await http().take(topic);
    await http().assertLedger(topic, { sent: 3, ready: 1, leased: 1, delayed: 1 });
    const shown = await http().topic(topic);
    assert.equal(shown.topic, topic);
    assert.equal(shown.bytes, 8);
    assert.ok(shown.oldest_s !== null && shown.oldest_s >= 0 && shown.oldest_s < 600);
    assert.deepEqual([shown.keys, shown.dead_bytes, shown.policy_set], [0, 0, []]);
    for (const path of ['', '/']) {
      const { topics } = await http().ok<{ topics: TopicDto[] }>('GET', path);
      const listed = topics.find((each) => each.topic === topic);
      assert.deepEqual(listed?.ledger, shown.ledger);
    }
  });

  test('a policy is set as a whole; fields that are left out follow the configuration', async () => {
    const topic = newTopic();
    const defaults = (await http().ok<TopicDto>('PUT', `/${topic}`, {})).policy;
    assert.deepEqual([defaults.max_messages, defaults.max_deliveries, defaults.window_ms], [1_000_000, 12, 300_000]);
    const set = await http().ok<TopicDto>('PUT', `/${topic}`, { max_messages: 5, window_ms: 10_000 });
    assert.deepEqual(set.policy, { ...defaults, max_messages: 5, window_ms: 10_000 });
    assert.deepEqual(set.policy_set.toSorted(), ['max_messages', 'window_ms']);
    assert.equal(set.window_ms, 10_000);
    const other = await http().ok<TopicDto>('PUT', `/${topic}`, { max_deliveries: 3 });
    assert.deepEqual(other.policy, { ...defaults, max_deliveries: 3 });
    assert.deepEqual((await http().topic(topic)).policy_set, ['max_deliveries']);
    const hooks = newTopic('hooks');
    assert.equal((await http().ok<TopicDto>('PUT', `/${hooks}`, {})).policy.window_ms, 86_400_000);
  });

  test('a capability for one topic opens exactly this topic', async () => {
    const name = newTopic('hooks');
    const longer = `${name}hub`;
    await http().send({ topic: name, payload: 'mine' }, { topic: longer, payload: 'theirs' });
    using own = await Http.open(http().target, { caveats: [`name ^= ${name}/`] });
    const message = await own.take(name);
    assert.deepEqual(await own.settle('ack', name, [message.token]), ['ok']);
    assert.equal((await own.call('POST', `/${name}`, 'x')).status, 201);
    await own.send({ topic: name });
    for (const [method, path, body] of [
      ['POST', `/${longer}`, 'x'],
      ['POST', `/${longer}/receive`, {}],
      ['POST', `/${longer}/ack`, { tokens: [message.token] }],
      ['POST', `/${longer}/nack`, { tokens: [message.token] }],
      ['POST', `/${longer}/extend`, { tokens: [message.token], visibility_ms: 1000 }],
      ['GET', `/${longer}`, undefined],
      ['PUT', `/${longer}`, {}],
      ['GET', `/${longer}/peek`, undefined],
      ['GET', `/${longer}/dlq`, undefined],
      ['POST', `/${longer}/dlq/replay`, {}],
      ['DELETE', `/${longer}/dlq`, undefined],
    ] as const) {
      assertRefusal(await own.call(method, path, body), 403, 'forbidden');
    }
    await http().assertLedger(longer, { sent: 1, ready: 1 });
    const { topics } = await own.ok<{ topics: TopicDto[] }>('GET', '');
    assert.deepEqual(
      topics.map(({ topic }) => topic),
      [name],
      'other topics are not listed',
    );
  });

  test('one topic outside the capability refuses the whole batch, in both forms, and nothing is stored', async () => {
    const [name, other] = [newTopic(), newTopic()];
    using own = await Http.open(http().target, { caveats: [`name ^= ${name}/`] });
    const both = [{ topic: name }, { topic: name, payload: base64('x') }, { topic: other }];
    const messages = both.map((message) => ({ payload: '', ...message }));
    assertRefusal(await own.call('POST', '/send', { messages }), 403, 'forbidden');
    const items = both.map(({ topic }) => ({ head: { topic }, payload: new Uint8Array(1) }));
    assertRefusal(await own.sendFramed(items), 403, 'forbidden');
    for (const topic of [name, other]) assertRefusal(await http().call('GET', `/${topic}`), 404, 'not_found');
  });

  test('a capability for a prefix opens all topics below it, and caveats add up', async () => {
    const prefix = newTopic('pre');
    const below = [`${prefix}.a`, `${prefix}.b`];
    await http().send({ topic: prefix }, ...below.map((topic) => ({ topic })));
    using own = await Http.open(http().target, { caveats: [`name ^= ${prefix}.`] });
    for (const topic of below) await own.take(topic);
    assertRefusal(await own.call('POST', `/${prefix}/receive`, {}), 403, 'forbidden');
    const listed = async (caveats: string[]): Promise<string[]> => {
      using limited = await Http.open(http().target, { caveats });
      const { topics } = await limited.ok<{ topics: TopicDto[] }>('GET', '');
      return topics.map(({ topic }) => topic).toSorted();
    };
    assert.deepEqual(await listed([`name ^= ${prefix}.`]), below);
    assert.deepEqual(await listed([`name ^= ${prefix}.`, `name ^= ${below[1]}/`]), [below[1]]);
    assert.deepEqual(await listed([`name ^= ${below[0]}/`, `name ^= ${below[1]}/`]), []);
  });
}
