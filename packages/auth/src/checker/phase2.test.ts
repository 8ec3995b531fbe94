import type { AccessRequest, Phase2 } from '@ron/proto';
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { blake3 } from '@napi-rs/blake-hash';
import { Bench } from '../../test/support.ts';
import { NOTHING_LEFT } from './phase2.ts';

const BODY = Buffer.from('hello, world');
const SHA = createHash('sha256').update(BODY).digest('hex');

async function phase2(caveats: string[], request: Partial<AccessRequest> = {}, bench = new Bench()): Promise<Phase2> {
  return (await bench.allowed(await bench.token({ caveats }), request)).phase2;
}

test('a capability that does not restrict the body has an empty phase 2', async () => {
  assert.equal(await phase2(['ip in 127.0.0.1']), NOTHING_LEFT);
  assert.equal(await phase2(['bytes <= 5'], { body_bytes: 0 }), NOTHING_LEFT);
  assert.equal(await phase2(['tenant = a'], { facts: { tenant: 'a' } }), NOTHING_LEFT);
  assert.equal(await phase2([], { facts_later: ['tenant', 'label'] }), NOTHING_LEFT);
  assert.equal(NOTHING_LEFT.settle(), undefined);
  assert.equal(NOTHING_LEFT.needsBody, false);
});

test('the byte limit refuses the chunk that exceeds it, even if the declared length is smaller, and the refusal is final', async () => {
  for (const body_bytes of [undefined, 10]) {
    const body = await phase2(['bytes <= 100', 'bytes <= 10'], { body_bytes });
    assert.equal(body.needsBody, true);
    assert.equal(body.update(new Uint8Array(4)), undefined);
    assert.equal(body.update(new Uint8Array(6)), undefined);
    const refusal = body.update(new Uint8Array(1));
    assert.deepEqual(refusal, { ok: false, code: 'forbidden', reason: 'capability allows bodies of at most 10 bytes' });
    assert.equal(body.update(new Uint8Array(0)), refusal);
    assert.equal(body.end(), refusal);
    assert.equal(body.settle(), refusal);
  }
});

test('a body of exactly the limit passes', async () => {
  const body = await phase2(['bytes <= 12']);
  assert.equal(body.update(BODY), undefined);
  assert.equal(body.end(), undefined);
  assert.equal(body.settle(), undefined);
});

test('the body hash holds for the body and for no other', async () => {
  const good = await phase2([`body = sha256:${SHA}`]);
  for (const byte of BODY) assert.equal(good.update(Uint8Array.of(byte)), undefined);
  assert.equal(good.end(), undefined);
  assert.equal(good.settle(), undefined);
  for (const wrong of [BODY.subarray(1), Buffer.concat([BODY, BODY]), Buffer.alloc(0)]) {
    const bad = await phase2([`body = sha256:${SHA}`]);
    assert.equal(bad.update(wrong), undefined);
    assert.match(bad.end()?.reason ?? '', /bound to another body/);
    assert.match(bad.settle()?.reason ?? '', /bound to another body/);
  }
});

test('two hashes must both match', async () => {
  const body = await phase2([
    `body = sha256:${SHA}`,
    `body = sha256:${SHA.replace(/^./, (first) => (first === '0' ? '1' : '0'))}`,
  ]);
  body.update(BODY);
  assert.match(body.end()?.reason ?? '', /bound to another body/);
});

test('an empty body is a body: its hash is checked too', async () => {
  const body = await phase2([`body = sha256:${SHA}`], { body_bytes: 0 });
  assert.equal(body.needsBody, true);
  assert.match(body.end()?.reason ?? '', /bound to another body/);
});

test('b3 is the BLAKE3 of the whole body, in pieces of any size, and holds beside sha256', async () => {
  const long = Buffer.alloc(200_000, 'ron');
  for (const [body, piece_bytes] of [
    [BODY, 1],
    [BODY, BODY.length],
    [Buffer.alloc(0), 1],
    [long, 16_384],
    [long, 100_000],
  ] as const) {
    const caveats = [
      `body = b3:${blake3(body).toString('hex')}`,
      `body = sha256:${createHash('sha256').update(body).digest('hex')}`,
    ];
    for (const extra of [Buffer.alloc(0), Buffer.from('!')]) {
      const whole = Buffer.concat([body, extra]);
      const check = await phase2(caveats);
      for (let at = 0; at < whole.length; at += piece_bytes)
        assert.equal(check.update(whole.subarray(at, at + piece_bytes)), undefined);
      const refusal = check.end();
      assert.equal(refusal === undefined, extra.length === 0, `${body.length} bytes`);
      assert.equal(check.settle(), refusal);
    }
  }
  const one = await phase2([`body = b3:${'ac'.repeat(32)}`, `body = sha256:${SHA}`]);
  one.update(BODY);
  assert.match(one.end()?.reason ?? '', /bound to another body/);
});

test('a body that was not read to its end is refused', async () => {
  for (const caveat of ['bytes <= 100', `body = sha256:${SHA}`]) {
    const body = await phase2([caveat]);
    body.update(BODY);
    assert.match(body.settle()?.reason ?? '', /was not read to its end/);
  }
});

test('nothing can be added to a body that has ended', async () => {
  const body = await phase2(['bytes <= 100']);
  body.end();
  assert.throws(() => body.update(BODY), /update is not called after the end of the body/);
});

test('facts in the body are checked for every item of a batch, and are mandatory', async () => {
  const later = { facts_later: ['tenant', 'label'] } as const;
  const caveats = ['tenant = acme', 'label ^= ron/'];
  const good = await phase2(caveats, later);
  assert.equal(good.needsBody, false);
  assert.equal(good.facts({ tenant: 'acme', label: 'ron/1' }), undefined);
  assert.equal(good.facts({ tenant: 'acme', label: 'ron/2' }), undefined);
  assert.equal(good.settle(), undefined);
  assert.match(good.facts({ tenant: 'acme', label: 'other' })?.reason ?? '', /a label that begins with ron\//);
  assert.match(good.settle()?.reason ?? '', /a label that begins with ron\//);
  assert.match(good.facts({ tenant: 'acme', label: 'ron/3' })?.reason ?? '', /a label that begins with ron\//);
  const partial = await phase2(caveats, later);
  assert.match(partial.facts({ tenant: 'acme' })?.reason ?? '', /states no label/);
  const silent = await phase2(caveats, later);
  assert.match(silent.settle()?.reason ?? '', /states no tenant/);
});

test('facts that are stated later are not taken from the headers', async () => {
  const body = await phase2(['tenant = acme'], { facts: { tenant: 'acme' }, facts_later: ['tenant'] });
  assert.match(body.settle()?.reason ?? '', /states no tenant/);
});
