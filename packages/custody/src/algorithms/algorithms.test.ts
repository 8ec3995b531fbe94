import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ALGORITHMS, signCost_us, verifyCost_us } from './algorithms.ts';

const LONG_BYTES = 64 * 1024;

test('the cost of a long message includes one hash per signature', () => {
  assert.equal(signCost_us('ed25519', 32), ALGORITHMS.ed25519.use_us);
  assert.equal(verifyCost_us('ed25519', 32), ALGORITHMS.ed25519.verify_us);
  const once_us = signCost_us('ed25519', LONG_BYTES) - ALGORITHMS.ed25519.use_us;
  assert.ok(once_us >= 2 * ALGORITHMS.ed25519.use_us, `${once_us}`);
  assert.equal(signCost_us('hybrid', LONG_BYTES), ALGORITHMS.hybrid.use_us + 2 * once_us);
  assert.equal(verifyCost_us('ml-dsa-65', LONG_BYTES), ALGORITHMS['ml-dsa-65'].verify_us + once_us);
});
