import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from 'fast-check';
import {
  ADDRESS_CHARS,
  ADDRESS_PATTERN,
  addressBytes,
  addressHex,
  checkAddress,
  formatAddress,
  isAddress,
  parseAddress,
  sameAddress,
} from './address.ts';

const numRuns = Number(process.env['RON_FUZZ_RUNS'] ?? 2000);
const hash = fc.uint8Array({ minLength: 32, maxLength: 32 });
const HEX = '0123456789abcdef'.split('');
const good = `b3:${'0123456789abcdef'.repeat(4)}`;

test('a hash survives formatting and parsing', () => {
  fc.assert(
    fc.property(hash, (bytes) => {
      const address = formatAddress(bytes);
      assert.equal(address.length, ADDRESS_CHARS);
      assert.equal(parseAddress(address), address);
      assert.deepEqual(addressBytes(address), Uint8Array.from(bytes));
      assert.equal(`b3:${addressHex(address)}`, address);
    }),
    { numRuns },
  );
});

test('parsing agrees with the published pattern on almost valid strings', () => {
  const pattern = new RegExp(ADDRESS_PATTERN);
  const digit = fc.constantFrom(...'0123456789abcdefABCDEFgG /:\n\u0000é'.split(''));
  const near = fc
    .tuple(
      fc.constantFrom('b3:', 'B3:', 'b3', 'b3::', ''),
      fc.array(fc.constantFrom(...HEX), { minLength: 62, maxLength: 66 }),
      fc.option(fc.tuple(fc.nat(65), digit)),
    )
    .map(([prefix, digits, change]) => {
      if (change !== null) digits[change[0]] = change[1];
      return prefix + digits.join('');
    });
  fc.assert(
    fc.property(near, (text) => {
      const expected = pattern.test(text);
      assert.equal(isAddress(text), expected);
      assert.equal(checkAddress(text).ok, expected);
    }),
    { numRuns },
  );
});

test('no value of any type throws, and a refusal states the reason without repeating the input', () => {
  fc.assert(
    fc.property(fc.oneof(fc.anything(), fc.string({ unit: 'binary', maxLength: 100 })), (value) => {
      const result = checkAddress(value);
      assert.equal(result.ok, isAddress(value));
      if (!result.ok) assert.match(result.problem, /^an address is "b3:" and 64 lower-case hex digits; th/);
    }),
    { numRuns },
  );
});

function problem(value: unknown): string {
  const result = checkAddress(value);
  return result.ok ? '' : (result.problem.split('; ')[1] ?? '');
}

test('the reason names the first problem', () => {
  assert.equal(problem(7), 'this is number, not a string');
  assert.equal(problem(null), 'this is null, not a string');
  assert.equal(problem(good.slice(3)), 'this does not begin with "b3:"');
  assert.equal(problem(`${good}00`), 'this has 66 characters after "b3:"');
  assert.equal(problem(good.toUpperCase().replace('B3', 'b3')), 'there is upper case at character 14');
  assert.equal(problem(good.replace('9', 'x')), 'character 13 is not a hex digit');
});

test('formatting refuses a hash of another size', () => {
  assert.throws(() => formatAddress(new Uint8Array(31)), RangeError);
  assert.throws(() => formatAddress(new Uint8Array(33)), RangeError);
});

test('only valid addresses are equal', () => {
  assert.equal(sameAddress(good, `b3:${good.slice(3)}`), true);
  assert.equal(sameAddress(good, good.replace('9', '8')), false);
  assert.equal(sameAddress('b3:', 'b3:'), false);
  assert.equal(sameAddress(undefined, undefined), false);
});
