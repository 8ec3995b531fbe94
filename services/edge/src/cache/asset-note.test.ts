/** A note is read back as it was written; anything else counts as absent. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { formatAddress } from '@ron/proto';
import fc from 'fast-check';
import { encodeNote, parseNote } from './asset-note.ts';
import type { AssetMeta } from './cached-asset.ts';

const address = formatAddress(new Uint8Array(32).fill(7));
const text = fc.string({ maxLength: 40 });
const optional = fc.option(text, { nil: undefined });
const count = fc.nat();
const time = fc.double({ min: 0, max: 4e12, noNaN: true });

const meta: fc.Arbitrary<AssetMeta> = fc
  .record({
    key: text,
    address: fc.constant(address),
    size: count,
    media_type: text,
    etag: optional,
    freshness: fc.option(
      fc.record({
        cache_control: optional,
        expires: optional,
        date: optional,
        last_modified: optional,
        age_s: count,
        request_ms: time,
        response_ms: time,
      }),
      { nil: undefined },
    ),
    provenance: fc.option(
      fc.record({ host: text, dialled: text, certificate_key: text, etag: optional, size: count, time_ms: time }),
      { nil: undefined },
    ),
    log_index: fc.option(count, { nil: undefined }),
  })
  .map((each) => ({
    ...each,
    provenance: each.provenance && { key: each.key, address: each.address, ...each.provenance },
  }));

test('a note is read back as it was written', () => {
  fc.assert(fc.property(meta, (each) => assert.deepEqual(parseNote(encodeNote(each)), structuredClone(each))));
});

const GOOD = {
  key: 'live/a.example/x',
  address,
  size: 3,
  media_type: 'image/png',
  freshness: { age_s: 0, request_ms: 1, response_ms: 2 },
  provenance: {
    key: 'live/a.example/x',
    host: 'a.example',
    dialled: '192.0.2.1:443',
    certificate_key: 'ab',
    size: 3,
    address,
    time_ms: 5,
  },
};

test('a field of another type, or one that is missing, makes it absent', () => {
  const parse = (value: unknown): AssetMeta | undefined => parseNote(Buffer.from(JSON.stringify(value)));
  assert.ok(parse(GOOD) !== undefined);
  const wrong = [null, {}, true, -1, 1.5, 'b3:00', []];
  const replaced = (part: object, name: string, value: unknown): object => ({ ...part, [name]: value });
  for (const name of ['key', 'address', 'size', 'media_type'])
    assert.equal(parse(replaced(GOOD, name, undefined)), undefined);
  for (const [name, values] of Object.entries({
    key: [null, 1, {}],
    address: wrong,
    size: [null, -1, 1.5, '3'],
    media_type: [null, 1],
    etag: [null, 1],
    log_index: [null, -1, '1'],
    freshness: [
      null,
      1,
      [],
      {},
      { ...GOOD.freshness, age_s: -1 },
      { ...GOOD.freshness, request_ms: 'x' },
      { ...GOOD.freshness, date: 1 },
    ],
    provenance: [
      null,
      {},
      { ...GOOD.provenance, key: 'live/b.example/x' },
      { ...GOOD.provenance, address: formatAddress(new Uint8Array(32)) },
      { ...GOOD.provenance, host: 1 },
      { ...GOOD.provenance, time_ms: -1 },
    ],
  })) {
    for (const value of values)
      assert.equal(parse(replaced(GOOD, name, value)), undefined, `${name}: ${JSON.stringify(value)}`);
  }
});

test('no bytes make the reader fail', () => {
  fc.assert(fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => void parseNote(bytes)));
  assert.equal(parseNote(Buffer.from([0xff, 0xfe])), undefined);
  assert.equal(parseNote(Buffer.alloc(100_000, ' ')), undefined);
});
