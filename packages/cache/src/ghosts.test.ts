import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Ghosts } from './ghosts.ts';

test('a key is taken once, within the window of weight', () => {
  const ghosts = new Ghosts({ window: 100, slots_max: 1024 });
  ghosts.add('a', 10);
  assert.equal(ghosts.has('a'), true);
  assert.equal(ghosts.take('a'), true);
  assert.equal(ghosts.take('a'), false);
  ghosts.add('b', 10);
  ghosts.add('c', 100);
  assert.equal(ghosts.take('b'), true, 'exactly the window');
  ghosts.add('b', 10);
  ghosts.add('c', 101);
  assert.equal(ghosts.take('b'), false);
});

test('the table grows until it remembers nearly all keys of its window, and not beyond its bound', () => {
  const ghosts = new Ghosts({ window: 10_000, slots_max: 65_536 });
  for (let key = 0; key < 100_000; key++) ghosts.add(`key ${key}`, 1);
  let remembered = 0;
  for (let key = 90_001; key < 100_000; key++) remembered += Number(ghosts.has(`key ${key}`));
  assert.ok(remembered > 9000, `${remembered} of 9999`);
  assert.ok(ghosts.bytes <= 65_536 * 12);
  const small = new Ghosts({ window: 10_000, slots_max: 100 });
  assert.equal(small.bytes, 0);
  for (let key = 0; key < 100_000; key++) small.add(`key ${key}`, 1);
  assert.equal(small.bytes, 64 * 12);
  small.clear();
  assert.equal(small.has('key 99999'), false);
});

test('keys that are taken leave their slots, so that the table does not grow for them', () => {
  const ghosts = new Ghosts({ window: 10_000, slots_max: 1024 });
  for (let key = 0; key < 6; key++) ghosts.add(`kept ${key}`, 1);
  const { bytes } = ghosts;
  for (let key = 0; key < 100; key++) {
    ghosts.add(`taken ${key}`, 1);
    ghosts.take(`taken ${key}`);
  }
  assert.equal(ghosts.bytes, bytes);
});

test('keys that differ only in the middle of a long text are the same; at either end they are not', () => {
  const ghosts = new Ghosts({ window: 100, slots_max: 1024 });
  const middle = (text: string): string => `${'x'.repeat(32)}${text}${'y'.repeat(32)}`;
  ghosts.add(middle('a'), 1);
  assert.equal(ghosts.has(middle('b')), true);
  assert.equal(ghosts.has(`a${middle('a').slice(1)}`), false);
  assert.equal(ghosts.has(`${middle('a').slice(0, -1)}z`), false);
});
