import assert from 'node:assert/strict';
import { test } from 'node:test';
import { areApart, formatDataDir, parseDataDir } from './data-dirs.ts';

test('a directory alone is its own failure domain', () => {
  assert.deepEqual(parseDataDir('/mnt/a'), { dir: '/mnt/a', domain: '/mnt/a', weight: undefined, isDraining: false });
});

test('options follow the directory, in any order', () => {
  const expected = { dir: '/mnt/a', domain: 'rack-1', weight: 2.5, isDraining: true };
  assert.deepEqual(parseDataDir('/mnt/a@domain=rack-1@weight=2.5@draining'), expected);
  assert.deepEqual(parseDataDir('/mnt/a@draining@weight=2.5@domain=rack-1'), expected);
});

test('an item reads back as it was formatted, with an absolute directory', () => {
  for (const item of ['/mnt/a', '/mnt/a@domain=rack-1@weight=2.5@draining', '/mnt/me@home/data@draining']) {
    assert.equal(formatDataDir(parseDataDir(item)!), item);
  }
  assert.equal(formatDataDir(parseDataDir('data')!), `${process.cwd()}/data`);
});

test('a directory may hold an @ that begins no option', () => {
  assert.equal(parseDataDir('/mnt/me@home/data')?.dir, '/mnt/me@home/data');
  assert.equal(parseDataDir('/mnt/me@home@domain=x')?.dir, '/mnt/me@home');
});

test('an invalid option is refused, not taken as a part of the name', () => {
  for (const item of ['', '/a@weight=0', '/a@weight=x', '/a@domain=', '/a@domain=a b', '/a@draining@domain=']) {
    assert.equal(parseDataDir(item), undefined, item);
  }
});

test('the same directory under another name, or one inside another, is refused', () => {
  assert.ok(areApart(['/mnt/a', '/mnt/ab', '/mnt/b', 'a', '/mnt/..a', '/mnt/a..b']));
  for (const dirs of [
    ['/mnt/a', '/mnt/a'],
    ['/mnt/a', '/mnt/a/'],
    ['/mnt/b', '/mnt/a/../b'],
    ['a', './a'],
    ['/mnt/a/segments', '/mnt/a'],
    ['/mnt/a', '/mnt/b', '/mnt/a/..c'],
    ['/', '/mnt/a'],
  ]) {
    assert.ok(!areApart(dirs), dirs.join(' '));
  }
});
