/**
 * More idempotency keys than are remembered: memory stays flat, the newest keys are found, and forgotten ones are counted.
 * A hundredth of the limits; RON_LONG=1 runs with the limits of the service.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { MailboxState } from '../src/queue/mailbox-state.ts';
import { SEEN_LIMITS, SeenKeys } from '../src/queue/seen-keys.ts';

const DIVISOR = process.env['RON_LONG'] === '1' ? 1 : 100;
const LIMITS = { per_topic: SEEN_LIMITS.per_topic / DIVISOR, total: SEEN_LIMITS.total / DIVISOR };
const BYTES_PER_KEY = 64;
/** Pages that are allocated in advance, and growth of hash and order. */
const SLACK = 1.5;
const WINDOW_MS = 86_400_000;

/** The same buffer for each key: it is copied, and garbage would be measured. */
const hash = Buffer.alloc(16);
function hashOf(n: number): Uint8Array {
  hash.writeUInt32LE(n);
  hash.writeUInt32LE(Math.imul(n, 2654435761) >>> 0, 8);
  return hash;
}

setFlagsFromString('--expose-gc');
const collectGarbage: () => void = runInNewContext('gc');

/** Bytes of typed arrays: the keys are kept in nothing else. */
function keptBytes(): number {
  // V8 frees the arrays of a collection in another thread, and finishes that before the next one.
  collectGarbage();
  collectGarbage();
  return process.memoryUsage().arrayBuffers;
}

test('[mailbox I-11] three times as many keys as the limit take no more memory than the limit', () => {
  const state = new MailboxState();
  const topics = ['a', 'b', 'c'].map((name) => state.createTopic(name)!);
  const seen = new SeenKeys(LIMITS);
  const id = new Uint8Array(16);
  const b3 = new Uint8Array(32);
  const before = keptBytes();
  const now_ms = 1_000_000;
  let n = 0;
  const addUpTo = (count: number): void => {
    for (; n < count; n += 1)
      seen.add({ topic: topics[n % 3]!, hash: hashOf(n), id, seq: n + 1, b3, until_ms: now_ms + WINDOW_MS }, now_ms);
  };
  addUpTo(LIMITS.total);
  const full = keptBytes() - before;
  assert.ok(full < LIMITS.total * BYTES_PER_KEY * SLACK, `${full / LIMITS.total} bytes a key`);
  addUpTo(3 * LIMITS.total);
  const later = keptBytes() - before;
  assert.ok(later < full * 1.1, `${later} bytes, ${full} when it was full`);
  assert.ok(seen.size <= LIMITS.total, `${seen.size} keys`);
  const evicted = topics.reduce((sum, topic) => sum + seen.evicted(topic), 0);
  assert.equal(evicted, n - seen.size);
  assert.equal(seen.find(topics[(n - 1) % 3]!, hashOf(n - 1), now_ms)?.seq, n);
  assert.equal(seen.find(topics[0]!, hashOf(0), now_ms), undefined);
  assert.ok(seen.windowInForce(topics[0]!, WINDOW_MS) < WINDOW_MS, 'the window in force is shorter');
  while (seen.expire(now_ms + 2 * WINDOW_MS, 10_000));
  assert.equal(seen.size, 0);
});
