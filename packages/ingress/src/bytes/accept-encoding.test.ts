import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { chooseVariant, qualityOf } from './accept-encoding.ts';

const BR = { encoding: 'br' };
const GZIP = { encoding: 'gzip' };
const PLAIN = {};

for (const [header, chosen] of [
  [undefined, PLAIN],
  ['', PLAIN],
  ['gzip', GZIP],
  ['GZIP', GZIP],
  ['x-gzip', GZIP],
  ['gzip, br', BR],
  ['gzip;q=1.0, br;q=0.5', GZIP],
  ['gzip ; q=0.5', GZIP],
  ['gzip;q=0', PLAIN],
  ['gzip;q=0, br;q=0', PLAIN],
  ['*', BR],
  ['*;q=0.1, gzip', GZIP],
  ['*;q=0', undefined],
  ['identity', PLAIN],
  ['identity;q=0.5, gzip;q=0.2', PLAIN],
  ['identity;q=0', undefined],
  ['identity;q=0, gzip', GZIP],
  ['identity;q=0, *', BR],
  ['*;q=0, identity', PLAIN],
  ['deflate', PLAIN],
  ['gzip;q=2, br;q=x, ;q=1', PLAIN],
] as const) {
  test(`Accept-Encoding: ${header ?? '(absent)'} gets ${chosen === undefined ? 'none' : JSON.stringify(chosen)}`, () => {
    assert.equal(chooseVariant([BR, GZIP, PLAIN], header), chosen);
  });
}

test('without an uncoded variant an absent header gets the first, one that excludes it gets none', () => {
  assert.equal(chooseVariant([GZIP], undefined), GZIP);
  assert.equal(chooseVariant([GZIP], 'identity'), undefined);
  assert.equal(chooseVariant([GZIP], ''), undefined);
});

test('for any header the weight is between 0 and 1', () => {
  fc.assert(
    fc.property(
      fc.string({ unit: fc.constantFrom('gzip', 'br', '*', ';', 'q=', '0', '1', '.5', ',', ' ', '\t', 'identity') }),
      (header) => {
        for (const encoding of ['gzip', 'br', undefined]) {
          const quality = qualityOf(encoding, header);
          assert.ok(quality >= 0 && quality <= 1, `${quality}`);
        }
      },
    ),
  );
});
