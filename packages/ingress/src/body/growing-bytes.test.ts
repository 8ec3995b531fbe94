import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { GrowingBytes } from './growing-bytes.ts';

test('pieces of any length are joined in order', () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 300 }), { maxLength: 200 }), (pieces) => {
      const bytes = new GrowingBytes();
      for (const piece of pieces) bytes.add(piece);
      assert.deepEqual(Buffer.from(bytes.whole()), Buffer.concat(pieces));
    }),
  );
});

test('a million tiny pieces of a slab take their own length of memory, not a slab each', () => {
  const before_bytes = process.memoryUsage().arrayBuffers;
  const bytes = new GrowingBytes();
  for (let index = 0; index < 1_000_000; index++) bytes.add(Buffer.alloc(1, index & 255));
  const whole = bytes.whole();
  assert.equal(whole.length, 1_000_000);
  assert.ok(whole.buffer.byteLength <= 2 * 1_048_576, `${whole.buffer.byteLength} bytes are held`);
  assert.ok(process.memoryUsage().arrayBuffers - before_bytes < 128 * 1024 * 1024);
});
