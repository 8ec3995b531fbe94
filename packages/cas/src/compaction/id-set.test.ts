import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import fc from 'fast-check';
import { IdSet } from './id-set.ts';

const idOf = (key: number): Uint8Array => blake3(Buffer.from(`${key}`));

test('added ids are found and others are not, through many growths', () => {
  const set = new IdSet({ ids_max: 100_000 });
  for (let key = 0; key < 20_000; key++) {
    set.add(idOf(key));
    set.add(idOf(key));
  }
  assert.equal(set.size, 20_000);
  for (let key = 0; key < 20_000; key++) assert.ok(set.has(idOf(key)), `${key}`);
  for (let key = 20_000; key < 40_000; key++) assert.ok(!set.has(idOf(key)), `${key}`);
});

test('ids that differ in one word, and the id of zeros, are distinguished', () => {
  const words = fc.array(fc.nat(1), { minLength: 2, maxLength: 2 });
  fc.assert(
    fc.property(fc.array(words), words, (added, asked) => {
      const bytesOf = ([first, second]: number[]): Uint8Array => {
        const id = Buffer.alloc(32);
        id.writeUInt32LE(first!, 0);
        id.writeUInt32LE(second!, 4);
        return id;
      };
      const set = new IdSet({ ids_max: 100 });
      for (const each of added) set.add(bytesOf(each));
      assert.equal(set.has(bytesOf(asked)), new Set(added.map(String)).has(String(asked)));
    }),
  );
});

test('an overflowed set finds every id', () => {
  const set = new IdSet({ ids_max: 3 });
  for (let key = 0; key < 4; key++) set.add(idOf(key));
  assert.ok(set.isOverflowed);
  for (let key = 0; key < 10; key++) assert.ok(set.has(idOf(key)));
});
