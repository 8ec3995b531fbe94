import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MailboxState } from './mailbox-state.ts';
import { NONE, type Slot, STATE } from './states.ts';

const AT = { segment: 7, offset: 4096 };
const PLACE = { segment: 3, offset: 128, payload_bytes: 100, meta_bytes: 20 };
/** On disk: header, payload and meta of `PLACE`. */
const RECORD_BYTES = 192;
const LIMITS = { max_messages: 3, max_bytes: 250 };

function newMailbox() {
  const state = new MailboxState(2);
  const topic = state.createTopic('a')!;
  assert.ok(state.finishLoad(10));
  const add = (seq: number, due_ms?: number): Slot =>
    state.add({ topic, seq, place: PLACE, sent_ms: 1_700_000_000_001, due_ms, key: undefined, isMoved: false });
  return { state, topic, add };
}

// [mailbox I-11]
test('sends in flight count against the limits of a topic', () => {
  const { topic, add } = newMailbox();
  add(1);
  assert.ok(topic.reserve(100, LIMITS));
  assert.ok(!topic.reserve(51, LIMITS), 'bytes');
  assert.ok(topic.reserve(50, LIMITS));
  assert.ok(!topic.reserve(0, LIMITS), 'messages');
  topic.unreserve(100);
  assert.ok(topic.reserve(100, LIMITS));
});

test('a dead letter takes no room of the waiting messages', () => {
  const { state, topic, add } = newMailbox();
  state.dead(add(1), { reason: 'expired', dead_ms: 5, attempts: 2, at: AT });
  assert.deepEqual([topic.bytes, topic.dead_bytes, topic.dead, topic.waiting], [0, 100, 1, 0]);
  assert.ok(topic.reserve(250, LIMITS));
});

// [mailbox I-11]
test('the 257th topic is refused, and a topic without a message can be closed', () => {
  const { state, topic, add } = newMailbox();
  add(1);
  const rest = Array.from({ length: 255 }, (_, index) => state.createTopic(`t${index}`)!);
  assert.equal(state.createTopic('more'), undefined);
  assert.equal(state.createTopic('t9'), rest[9]);
  assert.throws(() => state.closeTopic(topic), /no messages/, 'it has a message');
  assert.ok(rest[9]!.reserve(1, LIMITS));
  assert.throws(() => state.closeTopic(rest[9]!), /no messages/, 'a send is in flight');
  state.closeTopic(rest[8]!);
  assert.throws(() => state.closeTopic(rest[8]!), /removed once/);
  assert.equal(state.createTopic('more')?.index, rest[8]!.index);
  assert.equal(state.createTopic('t8'), undefined);
});

// [mailbox I-5]
test('only the token of the latest delivery is accepted', () => {
  const { state, topic, add } = newMailbox();
  const other = state.createTopic('b')!;
  const slot = add(5);
  const token = { seq: 5, delivery: 1, nonce: 77 };
  assert.equal(state.check(topic, token), 'stale', 'it was not delivered');
  assert.equal(state.check(topic, { ...token, delivery: 0, nonce: 0 }), 'unknown');
  state.lease(slot, { delivery: 1, attempts: 1, nonce: 77, due_ms: 10 });
  assert.equal(state.check(topic, token), slot);
  assert.equal(state.check(topic, { ...token, nonce: 78 }), 'stale');
  assert.equal(state.check(topic, { ...token, delivery: 2 }), 'stale');
  assert.equal(state.check(topic, { ...token, seq: 4 }), 'stale', 'gone');
  for (const seq of [0, -1, 6, NaN]) assert.equal(state.check(topic, { ...token, seq }), 'unknown');
  assert.equal(state.check(other, token), 'unknown');
  state.release(slot, undefined);
  assert.equal(state.check(topic, token), slot, 'the lease has ended without a new delivery');
  state.lease(slot, { delivery: 2, attempts: 2, nonce: 78, due_ms: 10 });
  assert.equal(state.check(topic, token), 'stale');
  state.dead(slot, { reason: 'nacked', dead_ms: 1, attempts: 2, at: { segment: 2, offset: 78 } });
  assert.equal(state.check(topic, { ...token, delivery: 2, nonce: 78 }), 'stale', 'a dead letter');
});

// [mailbox I-4]
test('a settling message is given to no receiver and to no timer, and a failed settlement gives it back', () => {
  const { state, topic, add } = newMailbox();
  const slot = add(1);
  state.lease(slot, { delivery: 1, attempts: 1, nonce: 1, due_ms: 10 });
  state.beginSettle(slot);
  assert.equal(state.due(1e9), NONE);
  assert.equal(state.nextDueMs(), undefined);
  for (const call of [
    () => state.lease(slot, { delivery: 2, attempts: 2, nonce: 2, due_ms: 10 }),
    () => state.release(slot, undefined),
    () => state.extend(slot, 100),
    () => state.beginSettle(slot),
  ])
    assert.throws(call, /message 1/);
  assert.equal(topic.leased, 1);
  state.undoSettle(slot);
  assert.throws(() => state.undoSettle(slot), /message 1/);
  assert.equal(state.due(10), slot, 'the lease ended meanwhile');
});

test('a ready message that is settling is not visible', () => {
  const { state, topic, add } = newMailbox();
  const slot = add(1);
  state.beginSettle(slot);
  assert.deepEqual(state.peek(topic, 1), []);
  assert.equal(topic.ready, 1);
  state.undoSettle(slot);
  assert.deepEqual(state.peek(topic, 1), [slot]);
});

test('a release keeps the attempts unless it states others, and a delivery keeps its number', () => {
  const { state, add } = newMailbox();
  const slot = add(1);
  state.lease(slot, { delivery: 4, attempts: 3, nonce: 9, due_ms: 10 });
  state.release(slot, 50);
  assert.deepEqual(pick(state, slot), { delivery: 4, attempts: 3, nonce: 9, due_ms: 50, state: STATE.delayed });
  state.release(slot, undefined, 2);
  assert.deepEqual(pick(state, slot), { delivery: 4, attempts: 2, nonce: 9, due_ms: undefined, state: STATE.ready });
});

function pick(state: MailboxState, slot: Slot) {
  const { delivery, attempts, nonce, due_ms, state: now } = state.view(slot);
  return { delivery, attempts, nonce, due_ms, state: now };
}

test('an age never begins before the send', () => {
  const { state, add } = newMailbox();
  assert.equal(state.sentMs(add(1)), 1_700_000_001_000);
});

test('a dead letter shows its reason and the place of its record, even after a move', () => {
  const { state, topic, add } = newMailbox();
  const slot = add(1);
  state.lease(slot, { delivery: 1, attempts: 1, nonce: 5, due_ms: 10 });
  for (const reason of ['max_deliveries', 'nacked', 'expired', 'damaged'] as const) {
    const each = add(state.last_seq + 1);
    state.dead(each, { reason, dead_ms: 123.5, attempts: 6, at: AT });
    state.beginSettle(each);
    state.undoSettle(each);
    const view = state.view(each);
    assert.deepEqual(view.dead, { reason, dead_ms: 123.5, at: AT });
    assert.deepEqual([view.delivery, view.nonce, view.attempts], [0, 0, 6]);
  }
  const dead = state.find(2);
  state.move(dead, { ...PLACE, segment: 9 });
  state.dead(dead, { reason: 'max_deliveries', dead_ms: 123.5, attempts: 6, at: { segment: 9, offset: 1 } });
  assert.deepEqual(state.view(dead).dead?.at, { segment: 9, offset: 1 });
  assert.deepEqual(state.view(dead).place, { ...PLACE, segment: 9 });
  assert.deepEqual([state.liveBytes(3), state.liveBytes(9), topic.dead], [4 * RECORD_BYTES, RECORD_BYTES, 4]);
});

test('live bytes are those of the records of messages that are not gone', () => {
  const { state, add } = newMailbox();
  const slot = add(1);
  assert.deepEqual([state.liveBytes(3), state.live_bytes], [RECORD_BYTES, RECORD_BYTES]);
  state.acked(slot);
  assert.deepEqual([state.liveBytes(3), state.live_bytes], [0, 0]);
});

// [mailbox I-8]
test('a moved message of a removed segment is not counted as sent again', () => {
  const { state, topic } = newMailbox();
  state.restoreTotals(topic, { sent: 10, acked: 6, gone: 1 });
  for (const seq of [1, 2, 3])
    state.add({ topic, seq, place: PLACE, sent_ms: 0, due_ms: undefined, key: undefined, isMoved: true });
  assert.deepEqual(topic.ledger(), { sent: 10, acked: 6, ready: 3, delayed: 0, leased: 0, dead: 0, gone: 1 });
});

test('a dead letter that moves without its damaged payload has another reason, and no bytes', () => {
  const { state, topic, add } = newMailbox();
  const slot = add(1);
  state.dead(slot, { reason: 'nacked', dead_ms: 1, attempts: 2, at: AT });
  state.beginSettle(slot);
  const place = { segment: 9, offset: 0, payload_bytes: 0, meta_bytes: PLACE.meta_bytes };
  state.move(slot, place);
  state.dead(slot, { reason: 'damaged', dead_ms: 1, attempts: 2, at: place });
  assert.equal(state.view(slot).dead!.reason, 'damaged');
  assert.ok(state.isSettling(slot));
  assert.equal(topic.dead_bytes, 0);
  state.removed(slot);
  assert.deepEqual([topic.dead, topic.dead_bytes, topic.bytes], [0, 0, 0]);
});

test('transitions that do not fit the state of a message are refused', () => {
  const { state, add } = newMailbox();
  const slot = add(1);
  assert.throws(() => add(1), /message 1 exists/);
  assert.throws(() => state.removed(slot), /message 1/);
  state.dead(slot, { reason: 'nacked', dead_ms: 1, attempts: 0, at: AT });
  assert.throws(() => state.acked(slot), /message 1/);
  assert.throws(() => state.extend(slot, 5), /message 1/);
});
