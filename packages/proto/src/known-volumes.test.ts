import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from 'fast-check';
import { formatKnownVolumes, parseKnownVolumes } from './known-volumes.ts';

const volumes = [
  { id: '0b9c9b1e-6f0e-4a53-8a6e-2a1d0b1c2d3e', item: '/mnt/a' },
  { id: '5d3f1a52-94a0-4f0b-b5b4-7d2b6a9c8e10', item: '/mnt/b,c@domain=rack-1' },
];

test('known volumes read back as they were written', () => {
  assert.deepEqual(parseKnownVolumes(formatKnownVolumes(volumes)), volumes);
  assert.deepEqual(parseKnownVolumes(formatKnownVolumes([])), []);
});

test('a file of another shape or a later version is refused as a whole', () => {
  const text = formatKnownVolumes(volumes);
  for (const bad of [
    '',
    'null',
    '[]',
    text.slice(0, -4),
    text.replace('"version": 1', '"version": 2'),
    text.replace('"/mnt/a"', '7'),
    text.replace('"/mnt/a"', '""'),
  ]) {
    assert.equal(parseKnownVolumes(bad), undefined, bad);
  }
});

test('arbitrary text never throws', () => {
  fc.assert(fc.property(fc.oneof(fc.string(), fc.json()), (text) => void parseKnownVolumes(text)));
});
