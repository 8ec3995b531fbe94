import assert from 'node:assert/strict';
import { test } from 'node:test';
import { releaseBytes } from './release-bytes.ts';

test('bytes that have their memory for themselves are gone', () => {
  const bytes = new Uint8Array(1024);
  releaseBytes(bytes);
  assert.equal(bytes.length, 0);
  releaseBytes(bytes);
});

test('memory that others may use stays as it is', () => {
  const whole = new Uint8Array(64).fill(7);
  releaseBytes(whole.subarray(0, 63));
  releaseBytes(whole.subarray(1));
  releaseBytes(new Uint8Array(new SharedArrayBuffer(16)));
  assert.deepEqual(whole, new Uint8Array(64).fill(7));
});
