import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { MailboxState } from './mailbox-state.ts';
import { idempotencyHash, isSameBody, SeenKeys, type SeenKey } from './seen-keys.ts';
import type { TopicState } from './topic-state.ts';

const LIMITS = { per_topic: 20, total: 30 };
const WINDOW_MS = 50_000;
const bytes = (length: number, value: number): Uint8Array => new Uint8Array(length).fill(value % 256);

function newTopics(): TopicState[] {
  const state = new MailboxState(2);
  return ['a', 'b', 'c'].map((name) => state.createTopic(name)!);
}

function keyOf(topic: TopicState, name: number, seq: number, until_ms: number): SeenKey {
  return {
    topic,
    hash: idempotencyHash(topic.name, `k${name}`),
    id: bytes(16, seq),
    seq,
    b3: bytes(32, seq),
    until_ms,
  };
}

/** The same promises by search in an array. */
class Reference {
  keys: SeenKey[] = [];
  evicted = 0;

  add(key: SeenKey): void {
    this.keys = this.keys.filter((each) => !isSameKey(each, key));
    const sameTopic = this.keys.filter(({ topic }) => topic === key.topic);
    if (sameTopic.length === LIMITS.per_topic) this.evict(sameTopic[0]!);
    else if (this.keys.length === LIMITS.total) this.evict(this.keys[0]!);
    this.keys.push(key);
  }

  evict(key: SeenKey): void {
    this.keys = this.keys.filter((each) => each !== key);
    this.evicted += 1;
  }
}

const isSameKey = (a: SeenKey, b: SeenKey): boolean => a.topic === b.topic && Buffer.compare(a.hash, b.hash) === 0;

// [mailbox I-2] [mailbox I-11]
test('keys are found until their end, and of too many the oldest are forgotten and counted', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.nat(4), fc.nat(2), fc.nat(60)), { maxLength: 300, size: 'max' }), (steps) => {
      const topics = newTopics();
      const seen = new SeenKeys(LIMITS, 2);
      const reference = new Reference();
      let now_ms = 1_000_000;
      let seq = 0;
      for (const [op, at, name] of steps) {
        if (op === 0) {
          now_ms += name * 100;
          while (seen.expire(now_ms, 2));
          reference.keys = reference.keys.filter(({ until_ms }) => Math.ceil(until_ms / 1000) * 1000 > now_ms);
        } else {
          const key = keyOf(topics[at]!, name, (seq += 1), now_ms + WINDOW_MS);
          seen.add(key, now_ms);
          reference.add(key);
        }
        compare(seen, reference, topics, now_ms);
      }
    }),
    { numRuns: 40 },
  );
});

function compare(seen: SeenKeys, reference: Reference, topics: readonly TopicState[], now_ms: number): void {
  assert.equal(seen.size, reference.keys.length);
  for (const key of reference.keys) {
    const found = seen.find(key.topic, key.hash, now_ms);
    assert.equal(found?.seq, key.seq);
    assert.deepEqual(found?.id, key.id);
    assert.ok(isSameBody(found, key.b3));
    assert.ok(!isSameBody(found, bytes(32, key.seq + 1)));
  }
  for (const topic of topics) {
    const expected = reference.keys.filter((each) => each.topic === topic);
    assert.equal(seen.count(topic), expected.length);
  }
  assert.equal(
    topics.reduce((sum, topic) => sum + seen.evicted(topic), 0),
    reference.evicted,
  );
}

test('a key of another topic is another key', () => {
  const [a, b] = newTopics();
  const seen = new SeenKeys();
  seen.add(keyOf(a!, 1, 1, 5000), 0);
  assert.equal(seen.find(b!, idempotencyHash('a', 'k1'), 0), undefined);
  assert.equal(seen.find(b!, idempotencyHash('b', 'k1'), 0), undefined);
  assert.equal(seen.find(a!, idempotencyHash('a', 'k1'), 4999)?.seq, 1);
  assert.equal(seen.find(a!, idempotencyHash('a', 'k1'), 5000), undefined);
});

test('a key that is remembered again gives the later message, and one of a replay does not undo that', () => {
  const [topic] = newTopics();
  const seen = new SeenKeys();
  const hash = idempotencyHash('a', 'k1');
  seen.add(keyOf(topic!, 1, 5, 5000), 0);
  seen.add(keyOf(topic!, 1, 9, 50_000), 6000);
  seen.add(keyOf(topic!, 1, 5, 50_000), 6000);
  assert.equal(seen.find(topic!, hash, 6000)?.seq, 9);
  assert.equal(seen.size, 1);
});

test('the window in force is the age of the keys that are forgotten early', () => {
  const [topic, other] = newTopics();
  const seen = new SeenKeys({ per_topic: 10, total: 100 });
  for (let seq = 1; seq <= 10; seq += 1) seen.add(keyOf(topic!, seq, seq, seq * 1000 + 60_000), seq * 1000);
  assert.equal(seen.windowInForce(topic!, 60_000), 60_000, 'full, and nothing was evicted');
  seen.add(keyOf(topic!, 11, 11, 71_000), 11_000);
  assert.equal(seen.windowInForce(topic!, 60_000), 10_000);
  assert.equal(seen.windowInForce(other!, 60_000), 60_000);
  assert.ok(!seen.expire(62_000, 10));
  assert.equal(seen.windowInForce(topic!, 60_000), 60_000, 'there is room again');
});
