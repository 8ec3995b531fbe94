/** The hasher of bytes in pieces, against the hash of the whole. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blake3 as peer } from '@napi-rs/blake-hash';
import fc from 'fast-check';
import { Blake3Hasher, GROUP_BYTES } from './blake3-hasher.ts';

const PIECES = [0, 1, 63, 1024, GROUP_BYTES - 1, GROUP_BYTES, GROUP_BYTES + 1, 3 * GROUP_BYTES + 7];

test('the hash does not depend on how the bytes are cut into pieces', () => {
  fc.assert(
    fc.property(fc.array(fc.oneof(fc.constantFrom(...PIECES), fc.nat(5000)), { maxLength: 12 }), (lengths) => {
      const hasher = new Blake3Hasher();
      const pieces = lengths.map((length, at) => Buffer.alloc(length, at + 1));
      for (const piece of pieces) hasher.update(piece);
      const whole = Buffer.concat(pieces);
      assert.equal(hasher.size, whole.length);
      assert.equal(hasher.digest().toHex(), peer(whole).toString('hex'));
    }),
    { numRuns: 60 },
  );
});

test('a piece may be reused once update has returned', () => {
  const hasher = new Blake3Hasher();
  const piece = Buffer.alloc(100, 1);
  hasher.update(piece);
  piece.fill(2);
  hasher.update(piece);
  const whole = Buffer.concat([Buffer.alloc(100, 1), Buffer.alloc(100, 2)]);
  assert.equal(hasher.digest().toHex(), peer(whole).toString('hex'));
});

test('the hasher of a small body keeps no buffer of a whole group', () => {
  const body = Buffer.alloc(1024, 7);
  const before = process.memoryUsage().arrayBuffers;
  const hashers = Array.from({ length: 1000 }, () => new Blake3Hasher());
  for (const hasher of hashers) hasher.update(body);
  const each = (process.memoryUsage().arrayBuffers - before) / hashers.length;
  assert.ok(each < 4096, `${each} bytes for each hasher`);
  for (const hasher of hashers) hasher.digest();
});
