import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { isRonError } from '@ron/kernel';
import { parseAsset, tileIn, tileKey, type AssetTarget, type Query } from './asset-target.ts';

const ADDRESS = `b3:${'0a'.repeat(32)}`;
const live = (path: string) => ({ kind: 'live', key: `live/${path}`, origin: '', url: '' }) as const;
const parse = (path: string, query: Query = {}): AssetTarget => parseAsset(path, query, live);

test('each kind of asset is recognised', () => {
  const place = { z: 3, x: 4, y: 2 };
  assert.deepEqual(parse('pack/a-b_0/3/4/2.mvt'), { kind: 'tile', pack: 'a-b_0', place, ext: 'mvt' });
  assert.deepEqual(parse('pack/planet.json'), { kind: 'tilejson', pack: 'planet' });
  assert.deepEqual(parse('pack/planet.pmtiles'), { kind: 'pack_file', pack: 'planet', proof: undefined });
  assert.deepEqual(parse(`o/${ADDRESS}`), { kind: 'fetched', missing: { kind: 'object', key: `o/${ADDRESS}` } });
  assert.deepEqual(parse('live/a.example/b'), { kind: 'fetched', missing: live('a.example/b') });
});

test('a proof has an offset and a length', () => {
  const proofOf = (query: Query): unknown => (parse('pack/p.pmtiles', query) as { proof?: unknown }).proof;
  assert.deepEqual(proofOf({ proof: 'bao' }), { offset: 0, length: undefined });
  assert.deepEqual(proofOf({ proof: 'bao', offset: '7', length: '0' }), { offset: 7, length: 0 });
});

const MISSING = [
  '',
  'pack',
  'pack/',
  'pack/planet',
  'pack/planet/3/4/2',
  'pack/planet/3/4/2.',
  'pack/planet/3/4/2.png/',
  'pack/planet/3/4/2.png/more',
  'pack/planet/03/4/2.png',
  'pack/planet/3/+4/2.png',
  'pack/planet/3/-4/2.png',
  'pack/planet/3/4/2e1.png',
  'pack/planet/3/4/2.5.png',
  'pack/planet/3/4/99999999999.png',
  `pack/planet/3/${'9'.repeat(400)}/2.png`,
  'pack/planet/3/4/٢.png',
  'pack/planet/3/4/2.PNG',
  'pack/Planet/3/4/2.png',
  'pack/pla net/3/4/2.png',
  'pack/pla.net/3/4/2.png',
  `pack/${'a'.repeat(65)}/3/4/2.png`,
  'pack/planet.mbtiles',
  'pack/planet.json.json',
  'pack/.json',
  'Pack/planet.json',
  'PACK/planet/3/4/2.png',
  'other/planet',
  'live',
  'o',
];

for (const path of MISSING) {
  test(`404: ${path.slice(0, 60)}`, () => {
    assert.throws(
      () => parse(path),
      (error) => isRonError(error, 'not_found'),
    );
  });
}

const REFUSED: readonly (readonly [path: string, query?: Query])[] = [
  ['o/'],
  ['o/b3:00'],
  [`o/${ADDRESS.toUpperCase()}`],
  [`o/${ADDRESS}/`],
  [`o/${ADDRESS}`, { a: '1' }],
  ['pack/planet/3/4/2.png', { v: '2' }],
  ['pack/planet.json', { v: '2' }],
  ['pack/planet.pmtiles', { offset: '1' }],
  ['pack/planet.pmtiles', { proof: 'merkle' }],
  ['pack/planet.pmtiles', { proof: 'bao', offset: '-1' }],
  ['pack/planet.pmtiles', { proof: 'bao', length: '1e3' }],
  ['pack/planet.pmtiles', { proof: 'bao', offset: '9'.repeat(16) }],
  ['pack/planet.pmtiles', { proof: 'bao', other: '' }],
];

for (const [path, query] of REFUSED) {
  test(`400: ${path.slice(0, 40)} ${JSON.stringify(query)}`, () => {
    assert.throws(
      () => parse(path, query),
      (error) => isRonError(error) && error.status === 400,
    );
  });
}

test('the key of a tile parses to the same tile', () => {
  const number = fc.integer({ min: 0, max: 2 ** 31 });
  const name = fc.stringMatching(/^[a-z0-9_-]{1,64}$/);
  fc.assert(
    fc.property(name, number, number, number, (pack, z, x, y) => {
      assert.deepEqual(tileIn(tileKey(pack, { z, x, y }, 'png')), {
        kind: 'tile',
        pack,
        place: { z, x, y },
        ext: 'png',
      });
    }),
  );
});

test('any text is an asset, or refused with 400 or 404', () => {
  const path = fc.oneof(
    fc.string(),
    fc.string({ unit: 'binary' }),
    fc.string().map((text) => `pack/${text}`),
  );
  fc.assert(
    fc.property(path, fc.dictionary(fc.string(), fc.string()), (text, query) => {
      try {
        parse(text, query);
      } catch (error) {
        assert.ok(isRonError(error) && [400, 404].includes(error.status), String(error));
      }
    }),
    { numRuns: 500 },
  );
});
