import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { IdFilter } from './id-filter.ts';

const idOf = (key: number): Uint8Array => blake3(Buffer.from(`${key}`));

function filled(count: number, bytes_max: number): IdFilter {
  const filter = new IdFilter({ ids: count, bytes_max });
  for (let key = 0; key < count; key++) filter.add(idOf(key));
  return filter;
}

const foundByChance = (filter: IdFilter, from: number, count: number): Set<number> =>
  new Set(Array.from({ length: count }, (_, at) => from + at).filter((key) => filter.has(idOf(key))));

test('every id that was added is found, and few others', () => {
  const filter = filled(20_000, 2 ** 20);
  for (let key = 0; key < 20_000; key++) assert.ok(filter.has(idOf(key)), `${key}`);
  assert.ok(foundByChance(filter, 20_000, 20_000).size < 200);
});

test('with a tenth of the memory every added id is found, and most others are not', () => {
  const filter = filled(20_000, 4000);
  assert.ok(filter.bytes <= 4000);
  for (let key = 0; key < 20_000; key++) assert.ok(filter.has(idOf(key)), `${key}`);
  assert.ok(foundByChance(filter, 20_000, 20_000).size < 15_000);
});

test('two filters have different false positives', () => {
  const [first, second] = [filled(5000, 2000), filled(5000, 2000)];
  const both = foundByChance(first, 5000, 5000).intersection(foundByChance(second, 5000, 5000));
  assert.ok(both.size < foundByChance(first, 5000, 5000).size * 0.7);
});
