import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from 'fast-check';
import { editDistance, nearest } from './nearest.ts';

const KEYS = ['server.max_inflight', 'server.max_rps', 'read_timeout', 'dht.hedge_ms', 'dht.deadline_ms'];

test('a mistyped key finds the one that was meant', () => {
  assert.equal(nearest('server.max_inflght', KEYS), 'server.max_inflight');
  assert.equal(nearest('server.max_rsp', KEYS), 'server.max_rps');
  assert.equal(nearest('Read_Timeout', KEYS), 'read_timeout');
  assert.equal(nearest('dht.hegde_ms', KEYS), 'dht.hedge_ms');
  assert.equal(nearest('max_inflight', KEYS), 'server.max_inflight', 'the table was left out');
  assert.equal(nearest('ingress.max_rps', KEYS), 'server.max_rps', 'the wrong table');
});

test('no hint is better than a wrong one', () => {
  assert.equal(nearest('colour', KEYS), undefined);
  assert.equal(nearest('', KEYS), undefined);
  assert.equal(nearest('x'.repeat(100_000), KEYS), undefined);
});

test('the distance is symmetric, zero only for the same word, and counts a swap once', () => {
  assert.equal(editDistance('kitten', 'sitting'), 3);
  assert.equal(editDistance('abcd', 'abdc'), 1);
  fc.assert(
    fc.property(fc.string({ maxLength: 12 }), fc.string({ maxLength: 12 }), (left, right) => {
      const distance = editDistance(left, right);
      assert.equal(distance, editDistance(right, left));
      assert.equal(distance === 0, left === right);
      assert.ok(distance <= Math.max(left.length, right.length));
      assert.equal(editDistance(left, right, 2), Math.min(2, distance));
    }),
  );
});
