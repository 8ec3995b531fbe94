import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { formatDurability, parseDurability } from './storage.ts';

test('the durability header is parsed as it was formatted', () => {
  const count = fc.integer({ min: 0, max: 9999 });
  fc.assert(
    fc.property(fc.record({ fsynced: fc.boolean(), copies: count, target: count }), (durability) => {
      assert.deepEqual(parseDurability(formatDurability(durability)), { ...durability });
    }),
  );
});

test('any other header is not parsed', () => {
  for (const header of [null, '', 'fsynced=2; copies=1; target=1', 'fsynced=1;copies=1;target=1', 'copies=1']) {
    assert.equal(parseDurability(header), undefined);
  }
  fc.assert(fc.property(fc.string(), (text) => assert.doesNotThrow(() => parseDurability(text))));
});
