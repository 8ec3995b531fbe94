import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { test } from 'node:test';
import { expand, expandInfo } from './expand.ts';

const unhex = (text: string): Buffer => Buffer.from(text, 'hex');

test('test cases 1 and 2 of RFC 5869', async () => {
  const prk1 = unhex('077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5');
  const okm1 = await expandInfo(
    (data) => createHmac('sha256', prk1).update(data).digest(),
    unhex('f0f1f2f3f4f5f6f7f8f9'),
    42,
  );
  assert.equal(
    Buffer.from(okm1).toString('hex'),
    '3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865',
  );
  const prk2 = unhex('06a6b88c5853361a06104c9ceb35b45cef760014904671014a193f40c15fc244');
  const info2 = Uint8Array.from({ length: 80 }, (_, index) => 0xb0 + index);
  const okm2 = await expandInfo((data) => createHmac('sha256', prk2).update(data).digest(), info2, 82);
  assert.equal(
    Buffer.from(okm2).toString('hex'),
    'b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87',
  );
});

test('the label is prefixed with its context', async () => {
  const seen: string[] = [];
  await expand(
    (data) => {
      seen.push(Buffer.from(data).toString('latin1'));
      return new Uint8Array(32);
    },
    'audience/storage/k1',
    32,
  );
  assert.deepEqual(seen, ['ron-kms/derive/v1\naudience/storage/k1\x01']);
});
