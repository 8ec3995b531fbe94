import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { decodeBundle, encodeBundle, parseTilePath, tilePath, widthAt, type Tile } from './tiles.ts';

test('paths have the documented format', () => {
  assert.equal(tilePath({ level: 0, index: 1_234_067, width: 256 }), 'tile/0/x001/x234/067');
  assert.equal(tilePath({ level: 'entries', index: 1000, width: 1 }), 'tile/entries/x001/000.p/1');
  assert.equal(tilePath({ level: 2, index: 0, width: 17 }), 'tile/2/000.p/17');
});

test('a tree of 70 000 entries has the documented tiles', () => {
  const size = 70_000;
  assert.deepEqual([widthAt(0, 272, size), widthAt(0, 273, size), widthAt(0, 274, size)], [256, 112, 0]);
  assert.deepEqual([widthAt(1, 0, size), widthAt(1, 1, size)], [256, 17]);
  assert.deepEqual([widthAt(2, 0, size), widthAt(3, 0, size)], [1, 0]);
  assert.deepEqual([widthAt('entries', 273, size), widthAt(0, 0, 256), widthAt(1, 0, 256)], [112, 256, 1]);
});

test('paths round-trip, and any other text is refused', () => {
  const level = fc.oneof(fc.integer({ min: 0, max: 63 }), fc.constant<'entries'>('entries'));
  const tile: fc.Arbitrary<Tile> = fc.record(
    { level, index: fc.maxSafeNat(), width: fc.integer({ min: 1, max: 256 }) },
    { noNullPrototype: true },
  );
  fc.assert(fc.property(tile, (each) => assert.deepEqual(parseTilePath(tilePath(each)), each)));
  const almost = fc.stringMatching(/^tile\/(entries|\d{1,3})\/(x?\d{1,4}\/){0,3}x?\d{1,4}(\.p\/\d{1,4})?$/);
  fc.assert(
    fc.property(fc.oneof(fc.string(), almost), (text) => {
      const found = parseTilePath(text);
      assert.ok(found === undefined || tilePath(found) === text);
    }),
    { numRuns: 1000 },
  );
  for (const path of [
    'tile/0/000.p/0',
    'tile/0/000.p/256',
    'tile/0/000.p/01',
    'tile/01/000',
    'tile/0/x000/001',
    'tile/0/0',
  ]) {
    assert.equal(parseTilePath(path), undefined, path);
  }
});

test('bundles round-trip, and malformed bytes are refused', () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 300 }), { maxLength: 20 }), (entries) => {
      assert.deepEqual(decodeBundle(encodeBundle(entries))?.map(asArray), entries.map(asArray));
    }),
  );
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
      const entries = decodeBundle(bytes);
      if (entries !== undefined) assert.deepEqual(asArray(encodeBundle(entries)), asArray(bytes));
    }),
  );
});

const asArray = (bytes: Uint8Array): number[] => [...bytes];
