/** One changed bit anywhere in the signed headers or the body makes a request invalid. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { VARIANTS, verify, type Sent } from './requests.ts';

const BODY = Buffer.from('{"id":"evt_1","n":[1,2]}');

const flipped = (bytes: Uint8Array, bit: number): Buffer => {
  const changed = Buffer.from(bytes);
  changed[bit >> 3]! ^= 1 << (bit & 7);
  return changed;
};

function* withOneBit(sent: Sent): Generator<readonly [where: string, sent: Sent]> {
  for (let bit = 0; bit < 8 * sent.body.length; bit += 1)
    yield [`bit ${bit} of the body`, { ...sent, body: flipped(sent.body, bit) }];
  for (const [at, [name, value]] of sent.headers.entries()) {
    for (let bit = 0; bit < 8 * value.length; bit += 1) {
      const changed = flipped(Buffer.from(value, 'latin1'), bit).toString('latin1');
      yield [`bit ${bit} of ${name}`, { ...sent, headers: sent.headers.with(at, [name, changed]) }];
    }
  }
}

for (const variant of VARIANTS) {
  test(`${variant.name}: each request with one changed bit is refused`, async () => {
    const sent = variant.sign(BODY);
    assert.equal((await verify(sent)).ok, true);
    let count = 0;
    for (const [where, changed] of withOneBit(sent)) {
      const verified = await verify(changed);
      assert.equal(verified.ok, false, where);
      assert.equal(!verified.ok && verified.reason, 'BAD_ORIGIN', where);
      count += 1;
    }
    assert.ok(count > 8 * (BODY.length + 44), `${count} requests were tried`);
  });
}
