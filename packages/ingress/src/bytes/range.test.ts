import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { fuzzRuns } from '@ron/testkit';
import { assertLinearTime } from '../../test/linear-time.ts';
import { parseRange } from './range.ts';
import type { RangeResult } from './range.ts';

const single = (start: number, end: number): RangeResult => ({ kind: 'single', start, end });
const ignore: RangeResult = { kind: 'ignore' };
const unsatisfiable: RangeResult = { kind: 'unsatisfiable' };
const HUGE = '9'.repeat(400);

const CORPUS: readonly [header: string | undefined, size: number, verdict: RangeResult][] = [
  [undefined, 10, { kind: 'none' }],
  ['bytes=0-0', 10, single(0, 1)],
  ['bytes=0-9', 10, single(0, 10)],
  ['bytes=0-10', 10, single(0, 10)],
  ['bytes=9-', 10, single(9, 10)],
  ['bytes=10-', 10, unsatisfiable],
  ['bytes=10-20', 10, unsatisfiable],
  ['bytes=-1', 10, single(9, 10)],
  ['bytes=-10', 10, single(0, 10)],
  ['bytes=-11', 10, single(0, 10)],
  ['bytes=-0', 10, unsatisfiable],
  ['bytes=-000', 10, unsatisfiable],
  ['bytes=0-', 0, unsatisfiable],
  ['bytes=0-0', 0, unsatisfiable],
  ['bytes=-0', 0, unsatisfiable],
  ['bytes=-5', 0, ignore],
  ['bytes=-', 10, ignore],
  ['bytes=5-4', 10, ignore],
  ['bytes=00005-0000006', 10, single(5, 7)],
  ['BYTES=1-2', 10, single(1, 3)],
  ['Bytes=1-2', 10, single(1, 3)],
  [`bytes=0-${HUGE}`, 10, single(0, 10)],
  [`bytes=${HUGE}-`, 10, unsatisfiable],
  [`bytes=-${HUGE}`, 10, single(0, 10)],
  [`bytes=${HUGE}-${HUGE}`, 10, unsatisfiable],
  [`bytes=${HUGE}9-${HUGE}`, 10, ignore],
  // These two differ only beyond the precision of a double.
  ['bytes=9007199254740993-9007199254740992', 10, ignore],
  ['bytes=9007199254740992-9007199254740993', 10, unsatisfiable],
  ['bytes=0-1,2-3', 10, ignore],
  ['bytes=0-1,99-', 10, ignore],
  ['bytes=0-1,', 10, single(0, 2)],
  ['bytes=,0-1', 10, single(0, 2)],
  ['bytes=, ,\t0-1 ,', 10, single(0, 2)],
  ['bytes=', 10, ignore],
  ['bytes=,', 10, ignore],
  ['bytes= 0-1', 10, ignore],
  ['bytes=0-1 ', 10, ignore],
  ['bytes =0-1', 10, ignore],
  ['bytes=0 -1', 10, ignore],
  ['bytes=0- 1', 10, ignore],
  ['bytes=+0-1', 10, ignore],
  ['bytes=0--1', 10, ignore],
  ['bytes=--1', 10, ignore],
  ['bytes=0-1-2', 10, ignore],
  ['bytes=0x1-2', 10, ignore],
  ['bytes=1e1-2', 10, ignore],
  ['bytes=1.0-2', 10, ignore],
  ['bytes=٠-٩', 10, ignore],
  ['bytes:0-1', 10, ignore],
  ['bytes 0-1/10', 10, ignore],
  ['items=0-1', 10, ignore],
  ['bytes=0-1, bytes=2-3', 10, ignore],
  ['0-1', 10, ignore],
  ['', 10, ignore],
  ['=', 10, ignore],
  ['bytes=0-1\0', 10, ignore],
];

test('the corpus of ranges', () => {
  for (const [header, size, verdict] of CORPUS)
    assert.deepEqual(parseRange(header, size), verdict, `${header} of ${size}`);
});

test('every well-formed range is exact', () => {
  const nat = fc.bigInt({ min: 0n, max: 10n ** 24n });
  const size = fc.oneof(fc.integer({ min: 0, max: 50 }), fc.maxSafeNat());
  const near = fc.oneof(nat, fc.bigInt({ min: 0n, max: 60n }));
  fc.assert(
    fc.property(near, near, size, (first, last, total) => {
      const verdict = parseRange(`bytes=${first}-${last}`, total);
      if (last < first) return assert.deepEqual(verdict, ignore);
      if (first >= BigInt(total)) return assert.deepEqual(verdict, unsatisfiable);
      const end = last + 1n < BigInt(total) ? last + 1n : BigInt(total);
      assert.deepEqual(verdict, single(Number(first), Number(end)));
    }),
    fuzzRuns(2000),
  );
});

test('arbitrary text never throws, and a single range is inside the object', () => {
  const nasty = fc.string({ unit: fc.constantFrom(...'bytes=0123456789-, \t'.split('')), maxLength: 40 });
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string({ unit: 'binary' }),
        nasty,
        nasty.map((s) => `bytes=${s}`),
      ),
      fc.nat(100),
      (header, size) => {
        const verdict = parseRange(header, size);
        if (verdict.kind === 'single')
          assert.ok(verdict.start >= 0 && verdict.start < verdict.end && verdict.end <= size);
      },
    ),
    fuzzRuns(5000),
  );
});

test('time is linear in the length', () => {
  assertLinearTime((length) => {
    for (const piece of [',', ', ', '0-1,', '9', '0', ' '])
      parseRange(`bytes=${piece.repeat(length / piece.length)}`, 10);
  });
});
