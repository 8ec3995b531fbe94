import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BufferPool } from './buffer-pool.ts';

test('a buffer that was given back is taken again, and a buffer in use is not', () => {
  const pool = new BufferPool(8, 2);
  const first = pool.take();
  assert.equal(first.length, 8);
  assert.notEqual(pool.take(), first);
  assert.equal(pool.give(first), true);
  assert.equal(pool.take(), first);
});

test('the pool keeps no more buffers than its limit, and none of another size', () => {
  const pool = new BufferPool(8, 2);
  const buffers = [pool.take(), pool.take(), pool.take()];
  assert.deepEqual(
    buffers.map((buffer) => pool.give(buffer)),
    [true, true, false],
  );
  const other = new BufferPool(8, 2);
  assert.equal(other.give(Buffer.allocUnsafeSlow(9)), false);
  assert.equal(other.give(Buffer.allocUnsafeSlow(16).subarray(0, 8)), false, 'a view keeps more memory than its size');
  assert.equal(other.kept, 0);
});
