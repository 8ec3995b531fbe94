import assert from 'node:assert/strict';
import { test } from 'node:test';
import { b3By, b3Of, idValue } from './body-fields.ts';

test('the hash of a body is the same for each form of its dedup value, even if a signed id looks like a hash', () => {
  const body = Buffer.from('{"zen":"Keep it logically awesome."}');
  const hash = b3Of(body);
  const other = b3Of(Buffer.from('another body'));
  for (const dedup of [hash, `${hash}:1700000000`, idValue('evt_1'), idValue(other)]) {
    assert.equal(b3By(dedup, body), hash, dedup);
  }
});
