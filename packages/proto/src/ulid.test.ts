import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { formatUlid, isUlid, ulidBytes } from './ulid.ts';

test('16 bytes and their ULID convert into each other', () => {
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 16, maxLength: 16 }), (bytes) => {
      const ulid = formatUlid(bytes);
      assert.ok(isUlid(ulid), ulid);
      assert.deepEqual(ulidBytes(ulid), new Uint8Array(bytes));
    }),
  );
});

test('the order of ULIDs is the order of their bytes', () => {
  const bytes = fc.uint8Array({ minLength: 16, maxLength: 16 });
  fc.assert(
    fc.property(bytes, bytes, (a, b) => {
      const by_text = formatUlid(a) < formatUlid(b);
      assert.equal(by_text, Buffer.compare(a, b) < 0);
    }),
  );
});

test('known values', () => {
  assert.equal(formatUlid(new Uint8Array(16)), '0'.repeat(26));
  assert.equal(formatUlid(new Uint8Array(16).fill(255)), `7${'Z'.repeat(25)}`);
  assert.equal(formatUlid(Buffer.from('0000000000000000000000000000001f', 'hex')), `${'0'.repeat(25)}Z`);
});

test('there is one spelling', () => {
  const ulid = '01J9ZK3Q7BC4D8WZ1V00A7K2M4';
  assert.ok(isUlid(ulid));
  for (const other of [
    ulid.toLowerCase(),
    ulid.slice(1),
    `${ulid}0`,
    `8${ulid.slice(1)}`,
    `${ulid.slice(0, 25)}U`,
    `${ulid.slice(0, 25)}I`,
    ` ${ulid.slice(1)}`,
    `${ulid.slice(0, 25)}\n`,
    '',
    7,
    null,
    undefined,
  ]) {
    assert.equal(isUlid(other), false, String(other));
    assert.throws(() => ulidBytes(other as string), RangeError);
  }
  assert.throws(() => formatUlid(new Uint8Array(15)), RangeError);
});
