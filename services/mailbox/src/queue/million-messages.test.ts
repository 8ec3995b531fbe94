/** The memory and the steps of large tables. Steps are counted and memory is read, so a busy machine does not matter. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { MailboxState } from './mailbox-state.ts';
import { SeenKeys } from './seen-keys.ts';
import type { HashRows } from './slots/slot-hash.ts';
import { MessageTable } from './message-table.ts';
import { SeenTable } from './seen-table.ts';
import type { TopicState } from './topic-state.ts';

const MILLION = 1_000_000;
const BYTES_MAX = 64;
/** Code, empty tables, and the objects of 250 pages: 1.1 MiB. */
const FIXED_BYTES = 2 * 1024 * 1024;

setFlagsFromString('--expose_gc');
const collect = runInNewContext('gc') as () => void;

function usedBytes(): number {
  collect();
  collect();
  const { arrayBuffers, heapUsed } = process.memoryUsage();
  return arrayBuffers + heapUsed;
}

function fill(state: MailboxState, topic: TopicState, count: number): void {
  const place = { segment: 1, offset: 64, payload_bytes: 1024, meta_bytes: 80 };
  for (let seq = 1; seq <= count; seq += 1)
    state.add({ topic, seq, place, sent_ms: 1_700_000_000_000, due_ms: undefined, key: undefined, isMoved: false });
}

/** The most rows that one call reads or writes. */
function mostSteps(rows: HashRows & { seqOf(slot: number): number }): { run<T>(call: () => T): T; most(): number } {
  let steps = 0;
  let most = 0;
  for (const name of ['seqOf', 'nextOf', 'setNext'] as const) {
    const plain = rows[name].bind(rows) as (...args: number[]) => number;
    Object.defineProperty(rows, name, { value: (...args: number[]) => ((steps += 1), plain(...args)) });
  }
  const run = <T>(call: () => T): T => {
    steps = 0;
    const result = call();
    most = Math.max(most, steps);
    return result;
  };
  return { run, most: () => most };
}

// [mailbox I-11]
test('a million waiting messages take at most 64 bytes each, leased ones too, and give them back', () => {
  const before = usedBytes();
  const state = new MailboxState();
  state.finishLoad(1);
  const topic = state.createTopic('a')!;
  fill(state, topic, MILLION);
  assert.ok(usedBytes() - before <= BYTES_MAX * MILLION, `${usedBytes() - before} bytes`);
  for (let nonce = 0; nonce < MILLION;) {
    const slots = state.peek(topic, 100);
    for (const slot of slots)
      state.lease(slot, { delivery: 1, attempts: 1, nonce: (nonce += 1), due_ms: (nonce * 7919) % 30_011 });
  }
  assert.equal(topic.leased, MILLION);
  const leased = usedBytes() - before;
  assert.ok(leased <= BYTES_MAX * MILLION + FIXED_BYTES, `${leased} bytes`);
  for (let seq = 1; seq <= MILLION; seq += 1) state.acked(state.find(seq));
  const empty = usedBytes() - before;
  assert.ok(empty <= 2 * FIXED_BYTES, `${empty} bytes`);
});

// [mailbox I-11]
test('a million idempotency keys take at most 64 bytes each, and give them back', () => {
  const topic = new MailboxState().createTopic('a')!;
  const before = usedBytes();
  const seen = new SeenKeys();
  const bytes = new Uint8Array(16);
  const view = new DataView(bytes.buffer);
  for (let seq = 1; seq <= MILLION; seq += 1) {
    view.setFloat64(0, Math.sin(seq));
    seen.add({ topic, hash: bytes, id: bytes, seq, b3: bytes, until_ms: 5000 }, 0);
  }
  assert.equal(seen.size, MILLION);
  const full = usedBytes() - before;
  assert.ok(full <= BYTES_MAX * MILLION + FIXED_BYTES, `${full} bytes`);
  while (seen.expire(6000, 1000));
  assert.equal(seen.size, 0);
  assert.ok(usedBytes() - before <= 2 * FIXED_BYTES);
});

test('no single add, search or removal visits more than a few rows of a table that grows to 300 k and shrinks', () => {
  const table = new MessageTable();
  const messages = mostSteps(table);
  const place = { segment: 1, offset: 64, payload_bytes: 1024, meta_bytes: 80 };
  // Every 64th number: hashes must not depend on numbers in a row.
  const seqs = Array.from({ length: 300_000 }, (_, index) => index * 64 + 1);
  for (const seq of seqs) messages.run(() => table.add({ seq, topic: 0, place, sent_ms: 0 }));
  for (const seq of seqs) messages.run(() => table.remove(table.find(seq)));
  assert.equal(table.size, 0);
  assert.ok(messages.most() < 150, `${messages.most()} steps`);
});

test('no single add or removal of an idempotency key visits more than a few rows', () => {
  const table = new SeenTable();
  const keys = mostSteps(table);
  const bytes = new Uint8Array(16);
  const view = new DataView(bytes.buffer);
  const add = (seq: number): void => {
    view.setFloat64(0, Math.sin(seq));
    keys.run(() => table.add({ topic: 0, hash: bytes, id: bytes, b3: bytes, seq, until_ms: 1 }));
  };
  for (let seq = 1; seq <= 200_000; seq += 1) add(seq);
  for (let seq = 1; seq <= 200_000; seq += 1) {
    view.setFloat64(0, Math.sin(seq));
    keys.run(() => table.remove(table.find(0, bytes)));
  }
  assert.equal(table.size, 0);
  assert.ok(keys.most() < 200, `${keys.most()} steps`);
});
