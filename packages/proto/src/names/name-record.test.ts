import assert from 'node:assert/strict';
import { test } from 'node:test';
import { encode } from 'cborg';
import * as fc from 'fast-check';
import { formatAddress } from '../address.ts';
import {
  decodeNameRecord,
  encodeNameRecord,
  joinSignedName,
  NAME_LIFE_S,
  NAME_LIFE_S_MAX,
  NAME_RECORD_BYTES_MAX,
  NAME_SEQ_MAX,
  NAME_TTL_S_MAX,
  notAfterProblem,
  signedNameBytes,
  splitSignedName,
  type NameRecord,
} from './name-record.ts';

const numRuns = Number(process.env['RON_FUZZ_RUNS'] ?? 1000);
const KEY = 'aa'.repeat(32);
const hash = fc.uint8Array({ minLength: 32, maxLength: 32 });
const hex = hash.map((bytes) => Buffer.from(bytes).toString('hex'));
const label = fc.constantFrom('a', 'docs/readme', 'x.y_z-1', `${`${'a'.repeat(62)}/`.repeat(4)}abc`);
const value = fc.oneof(
  hash.map((bytes) => ({ value: formatAddress(bytes) })),
  hex.map((moved_to) => ({ moved_to })),
  fc.constant({}),
);
const order = fc.oneof(
  fc.constant({ seq: 1 }),
  fc.record({ seq: fc.integer({ min: 2, max: NAME_SEQ_MAX }), previous: hex }),
);
const record: fc.Arbitrary<NameRecord> = fc
  .tuple(
    fc.record({
      key: hex,
      label,
      not_after: fc.integer({ min: 1, max: NAME_SEQ_MAX }),
      ttl_s: fc.integer({ min: 0, max: NAME_TTL_S_MAX }),
    }),
    value,
    order,
  )
  .map((parts) => Object.assign({}, ...parts) as NameRecord);

const SAMPLE: NameRecord = {
  key: KEY,
  label: 'docs/readme',
  value: formatAddress(new Uint8Array(32).fill(1)),
  seq: 2,
  not_after: 2_000_000_000,
  ttl_s: 60,
  previous: 'bb'.repeat(32),
};
const SAMPLE_BYTES = encodeNameRecord(SAMPLE);
const sampleMap = (): Map<unknown, unknown> =>
  new Map<unknown, unknown>([
    [1, Uint8Array.fromHex(KEY)],
    [2, 'docs/readme'],
    [4, 1],
    [5, 2_000_000_000],
    [6, 60],
  ]);

function problemOf(bytes: Uint8Array): string {
  const result = decodeNameRecord(bytes);
  assert.ok(!result.ok, 'the record was accepted');
  return result.problem;
}

test('a record survives encoding and decoding, within the limit', () => {
  fc.assert(
    fc.property(record, (each) => {
      const bytes = encodeNameRecord(each);
      assert.ok(bytes.length <= NAME_RECORD_BYTES_MAX / 2);
      assert.deepEqual(decodeNameRecord(bytes), { ok: true, record: each });
    }),
    { numRuns },
  );
});

test('the encoding is the documented one', () => {
  const expected = [
    'a7',
    `015820${KEY}`,
    `026b${Buffer.from('docs/readme').toString('hex')}`,
    `035820${'01'.repeat(32)}`,
    '0402',
    '051a77359400',
    '06183c',
    `075820${'bb'.repeat(32)}`,
  ].join('');
  assert.equal(Buffer.from(SAMPLE_BYTES).toString('hex'), expected);
  assert.equal(Buffer.from(signedNameBytes(SAMPLE_BYTES)).toString('latin1').slice(0, 12), 'ron/name/v1\n');
});

test('bytes are either refused or the one encoding of the record that they hold', () => {
  // A changed byte, or arbitrary bytes, must not give a second encoding of a record.
  const changed = fc
    .tuple(fc.nat(SAMPLE_BYTES.length - 1), fc.nat(255))
    .map(([at, byte]) => SAMPLE_BYTES.with(at, byte));
  fc.assert(
    fc.property(fc.oneof(changed, fc.uint8Array({ maxLength: 1100 })), (bytes) => {
      const result = decodeNameRecord(bytes);
      if (result.ok) assert.deepEqual(encodeNameRecord(result.record), Uint8Array.from(bytes));
      else assert.equal(typeof result.problem, 'string');
    }),
    { numRuns },
  );
});

test('every truncation and every appended byte is refused', () => {
  for (let end = 0; end < SAMPLE_BYTES.length; end++) problemOf(SAMPLE_BYTES.subarray(0, end));
  problemOf(Uint8Array.of(...SAMPLE_BYTES, 0));
});

test('other encodings of the same map are refused', () => {
  const head = `a5015820${KEY}02616104010505`;
  const tail = '0600';
  const isOk = decodeNameRecord(Uint8Array.fromHex(head + tail)).ok;
  assert.ok(isOk, 'the base of the variants is valid');
  const variants = {
    'length of two bytes': `b805015820${KEY}026161040105050600`,
    'indefinite map': `bf015820${KEY}026161040105050600ff`,
    'seq in two bytes': `a5015820${KEY}02616104180105050600`,
    'seq as a float': `a5015820${KEY}02616104f93c0005050600`,
    unsorted: `a5026161015820${KEY}040105050600`,
    'duplicated key': `a6015820${KEY}026161026161040105050600`,
    'label in chunks': `a5015820${KEY}027f6161ff040105050600`,
    tagged: `c1${head}${tail}`,
    'seq as a big number': `a5015820${KEY}026161041b002000000000000005050600`,
  };
  for (const [name, variant] of Object.entries(variants)) {
    assert.ok(!decodeNameRecord(Uint8Array.fromHex(variant)).ok, name);
  }
});

test('oversized and nested input is refused at once', () => {
  assert.match(problemOf(new Uint8Array(NAME_RECORD_BYTES_MAX + 1)), /at most 1024/);
  assert.match(problemOf(new Uint8Array(NAME_RECORD_BYTES_MAX).fill(0x81)), /canonical CBOR map/);
  problemOf(Uint8Array.fromHex('bb001fffffffffffff'));
  problemOf(Uint8Array.fromHex('5b001fffffffffffff'));
});

test('each broken field is named', () => {
  const cases: [(map: Map<unknown, unknown>) => void, RegExp][] = [
    [(map) => map.delete(1), /^key/],
    [(map) => map.set(1, new Uint8Array(31)), /^key/],
    [(map) => map.set(1, KEY), /^key/],
    [(map) => map.set(2, 'Docs'), /upper case/],
    [(map) => map.set(2, 7), /label/],
    [(map) => map.delete(2), /label/],
    [(map) => map.set(3, new Uint8Array(33)), /^value/],
    [(map) => map.set(3, null), /^value/],
    [(map) => map.set(4, 0), /^seq/],
    [(map) => map.set(4, -1), /^seq/],
    [(map) => map.set(4, 1.5), /^seq/],
    [(map) => map.set(4, 2n ** 53n), /canonical CBOR map/],
    [(map) => map.set(4, 2), /previous/],
    [(map) => map.set(7, new Uint8Array(32)), /seq 1 has no previous/],
    [(map) => map.set(5, 0), /^not_after/],
    [(map) => map.delete(5), /^not_after/],
    [(map) => map.set(6, -1), /^ttl_s/],
    [(map) => map.set(6, NAME_TTL_S_MAX + 1), /^ttl_s/],
    [(map) => map.set(8, Uint8Array.fromHex(KEY)), /another key/],
    [(map) => map.set(8, new Uint8Array(32)).set(3, new Uint8Array(32)), /has no value/],
    [(map) => map.set(9, 1), /unknown field/],
    [(map) => map.set('1', 1), /unknown field/],
  ];
  for (const [change, reason] of cases) {
    const map = sampleMap();
    change(map);
    assert.match(problemOf(encode(map)), reason);
  }
  assert.throws(() => encodeNameRecord({ ...SAMPLE, seq: NAME_SEQ_MAX + 1 }), RangeError);
});

test('a life ends in the future, and at most two years ahead', () => {
  assert.match(notAfterProblem(100, 100) ?? '', /past/);
  assert.match(notAfterProblem(101 + NAME_LIFE_S_MAX, 100) ?? '', /2 years/);
  assert.equal(notAfterProblem(100 + NAME_LIFE_S_MAX, 100), undefined);
  assert.equal(notAfterProblem(100 + NAME_LIFE_S, 100), undefined);
});

test('a value of the DHT is split into signature and record by its length', () => {
  const signature = new Uint8Array(64).fill(7);
  assert.deepEqual(splitSignedName(joinSignedName(signature, SAMPLE_BYTES)), { signature, record: SAMPLE_BYTES });
  for (const length of [0, 63, 64, 64 + NAME_RECORD_BYTES_MAX + 1]) {
    assert.equal(splitSignedName(new Uint8Array(length)), undefined);
  }
});
