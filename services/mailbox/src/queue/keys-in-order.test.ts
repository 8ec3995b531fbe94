import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MailboxState } from './mailbox-state.ts';
import { type Slot } from './states.ts';

const AT = { segment: 1, offset: 0 };
const PLACE = { ...AT, payload_bytes: 10, meta_bytes: 10 };

function newMailbox(isLoaded = true) {
  const state = new MailboxState(2);
  const topic = state.createTopic('a')!;
  if (isLoaded) assert.ok(state.finishLoad(10));
  const add = (seq: number, key?: string, due_ms?: number): Slot =>
    state.add({ topic, seq, place: PLACE, sent_ms: 0, due_ms, key, isMoved: false });
  const visible = (): number[] => state.peek(topic, 100).map((slot) => state.seqOf(slot));
  const lease = (seq: number): void =>
    state.lease(state.find(seq), { delivery: 1, attempts: 1, nonce: seq, due_ms: 1000 });
  return { state, topic, add, visible, lease };
}

// [mailbox I-6]
test('one message of a key is out at a time, and other keys pass', () => {
  const { state, add, visible, lease } = newMailbox();
  add(1, 'x');
  add(2, 'x');
  add(3, 'y');
  add(4);
  assert.deepEqual(visible(), [1, 3, 4]);
  lease(1);
  assert.deepEqual(visible(), [3, 4]);
  state.beginSettle(state.find(1));
  assert.deepEqual(visible(), [3, 4], 'while the ack is syncing, the key is still held');
  state.acked(state.find(1));
  assert.deepEqual(visible(), [2, 3, 4]);
});

// [mailbox I-6]
test('a failed message of a key is delivered again before the later ones of the key', () => {
  const { state, add, visible, lease } = newMailbox();
  add(1, 'x');
  add(2, 'x');
  lease(1);
  state.release(state.find(1), 500);
  assert.deepEqual(visible(), []);
  assert.equal(state.due(500), state.find(1));
  state.release(state.find(1), undefined);
  assert.deepEqual(visible(), [1]);
});

// [mailbox I-6]
test('a delayed first message of a key holds back the later ones', () => {
  const { state, add, visible } = newMailbox();
  add(1, 'x', 500);
  add(2, 'x');
  add(3, 'x', 100);
  assert.deepEqual(visible(), []);
  state.release(state.due(100), undefined);
  assert.deepEqual(visible(), [], 'its delay is over, but it is behind its key');
  state.release(state.due(500), undefined);
  assert.deepEqual(visible(), [1]);
});

// [mailbox I-6]
test('a dead letter releases its key', () => {
  const { state, add, visible, lease } = newMailbox();
  add(1, 'x');
  add(2, 'x');
  lease(1);
  state.dead(state.find(1), { reason: 'nacked', dead_ms: 1, attempts: 1, at: AT });
  assert.deepEqual(visible(), [2]);
  state.removed(state.find(1));
  assert.deepEqual(visible(), [2]);
});

test('a message behind its key counts as ready', () => {
  const { topic, add } = newMailbox();
  add(1, 'x');
  add(2, 'x');
  assert.equal(topic.ready, 2);
  assert.equal(topic.visible, 1);
});

test('equal keys of two topics do not wait for each other', () => {
  const { state, add, visible } = newMailbox();
  const other = state.createTopic('b')!;
  add(1, 'x');
  state.add({ topic: other, seq: 2, place: PLACE, sent_ms: 0, due_ms: undefined, key: 'x', isMoved: false });
  assert.deepEqual(visible(), [1]);
  assert.equal(other.visible, 1);
});

// [mailbox I-6]
test('after a replay, keys are in the order of the sends, even if compaction has moved some', () => {
  const { state, add, visible, lease } = newMailbox(false);
  add(5, 'x');
  add(8, 'y');
  lease(8);
  // Moved by compaction: their records come after later messages.
  add(1, 'x');
  add(2, 'x');
  add(3, 'y');
  add(4);
  state.acked(state.find(2));
  assert.deepEqual(visible(), [4], 'keys are not linked yet');
  while (!state.finishLoad(1));
  assert.deepEqual(visible(), [1, 3, 4]);
  state.acked(state.find(1));
  assert.deepEqual(visible(), [3, 4, 5]);
  add(9, 'y');
  state.acked(state.find(3));
  assert.deepEqual(visible(), [4, 5], '8 is the first of its key, and leased');
  state.acked(state.find(8));
  assert.deepEqual(visible(), [4, 5, 9]);
});
