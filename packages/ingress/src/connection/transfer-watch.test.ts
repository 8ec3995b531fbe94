import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { TransferWatch } from './transfer-watch.ts';

const limits = { stall_ms: 5000, rate_bytes_per_s_min: 1000 };

test('no byte for the stall limit is a stall; a byte just before it is not', () => {
  const watch = new TransferWatch();
  assert.equal(watch.check(0, 7, limits), 'ok');
  assert.equal(watch.check(4999, 7, limits), 'ok');
  assert.equal(watch.check(5000, 7, limits), 'stalled');
});

test('a slow transfer is cut once its average, less the grace, is below the rate', () => {
  const watch = new TransferWatch();
  watch.check(0, 0, limits);
  assert.equal(watch.check(4000, 1, limits), 'ok', 'within the grace');
  assert.equal(watch.check(6000, 999, limits), 'too_slow', 'one second counts, so 1000 bytes are due');
});

test('after a rest the next transfer starts afresh', () => {
  const watch = new TransferWatch();
  watch.check(0, 0, limits);
  watch.rest();
  assert.equal(watch.check(60_000, 0, limits), 'ok');
  assert.equal(watch.check(64_999, 0, limits), 'ok');
});

test('a client that keeps the rate and never pauses for the stall limit is never cut, however long it takes', () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 1, max: 4999 }), { maxLength: 200 }), (pauses_ms) => {
      const watch = new TransferWatch();
      let now_ms = 0;
      let moved = 0;
      watch.check(now_ms, moved, limits);
      for (const pause_ms of pauses_ms) {
        now_ms += pause_ms;
        moved += Math.ceil(pause_ms);
        assert.equal(watch.check(now_ms, moved, limits), 'ok');
      }
    }),
  );
});
