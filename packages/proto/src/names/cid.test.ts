import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from 'fast-check';
import { formatAddress } from '../address.ts';
import { fromBase32, toBase32 } from './base32.ts';
import { addressToCid, checkCid } from './cid.ts';

const numRuns = Number(process.env['RON_FUZZ_RUNS'] ?? 1000);

test('an address survives the way to a CID and back', () => {
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 32, maxLength: 32 }), (hash) => {
      const address = formatAddress(hash);
      const cid = addressToCid(address);
      assert.match(cid, /^bafkr4i[a-z2-7]{52}$/);
      assert.deepEqual(checkCid(cid), { ok: true, address });
    }),
    { numRuns },
  );
});

test('bytes survive base32, and each has one spelling', () => {
  assert.equal(toBase32(new TextEncoder().encode('foobar')), 'mzxw6ytboi');
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 40 }), fc.string({ maxLength: 10 }), (bytes, text) => {
      assert.deepEqual(fromBase32(toBase32(bytes)), Uint8Array.from(bytes));
      const decoded = fromBase32(text);
      if (decoded !== undefined) assert.equal(toBase32(decoded), text);
    }),
    { numRuns },
  );
});

test('a CID of another kind is refused with the reason', () => {
  const good = addressToCid(formatAddress(new Uint8Array(32)));
  const withHeader = (...header: number[]): string =>
    `b${toBase32(Uint8Array.from([...header, ...new Uint8Array(32)]))}`;
  const cases: [unknown, RegExp][] = [
    ['QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG', /CIDv0/],
    ['zb2rhe5P4gXftAwvA4eXQ5HJwsER2owDyS9sKaQRRVQPn93bA', /base32/],
    [good.toUpperCase(), /"b"/],
    [`${good}a`, /not valid base32/],
    [good.slice(0, -1), /not valid base32|32 bytes/],
    [`${good}=`, /not valid base32/],
    [withHeader(2, 0x55, 0x1e, 32), /version/],
    [withHeader(1, 0x70, 0x1e, 32), /codec/],
    [withHeader(1, 0x55, 0x12, 32), /BLAKE3/],
    [withHeader(1, 0x55, 0x1e, 31), /32 bytes/],
    [withHeader(1, 0x55, 0x1e, 32, 0), /32 bytes/],
    ['b', /version/],
    ['', /"b"/],
    ['b'.repeat(1000), /more than 256/],
    [undefined, /string/],
  ];
  for (const [input, reason] of cases) {
    const result = checkCid(input);
    assert.ok(!result.ok, `${String(input)} was accepted`);
    assert.match(result.problem, reason);
  }
});
