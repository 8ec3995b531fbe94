import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as peer from '../../test/peer.ts';
import { Bench, signal, TestClock } from '../../test/support.ts';
import { attenuate, inspectToken, mint, mintWith } from './capability.ts';
import { parseNetwork } from './networks.ts';
import { MemoryKeySource } from '../keys/key-source.ts';
import { CAPABILITY_LIMITS } from './limits.ts';
import { CLOCK_SKEW_MS } from '../revocations/epochs.ts';
import { newMacaroon } from './macaroon.ts';
import { encodeToken } from './token.ts';

const validation = (message: RegExp) => (error: Error & { code?: string }) => {
  assert.equal(error.code, 'validation');
  assert.match(error.message, message);
  return true;
};

test('a minted capability contains its inputs', async () => {
  using clock = new TestClock();
  await using keys = new MemoryKeySource();
  const minted = await mint(
    keys,
    {
      audience: 'kms',
      scopes: ['kms:sign', 'kms:verify'],
      ttl_ms: 5000,
      subject: 'ci-runner',
      epoch: 7,
      caveats: ['tenant = acme', { key: 'rate', count: 10, period_ms: 1000 }],
    },
    signal,
  );
  const shown = inspectToken(minted.token);
  assert.equal(minted.expires_ms, clock.wall_ms + 5000);
  assert.deepEqual(shown.texts, [
    'audience = kms',
    `expires < ${clock.wall_ms + 5000}`,
    'scopes in kms:sign,kms:verify',
    'tenant = acme',
    'rate <= 10/s',
  ]);
  assert.equal(shown.capability_id, minted.capability_id);
  assert.equal(shown.subject, 'ci-runner');
  assert.equal(shown.epoch, 7);
  assert.equal(shown.key_id, (await keys.current('kms', signal)).key_id);
  assert.equal(shown.audience, 'kms');
  assert.equal(shown.expires_ms, minted.expires_ms);
  assert.equal(shown.problem, undefined);
  assert.equal(shown.bytes, Buffer.from(minted.token, 'base64url').length);
});

test('the readable form of a token cannot be used as a token', async () => {
  const bench = new Bench();
  const token = await bench.token({ caveats: ['tenant = acme'] });
  const signature = Buffer.from(token, 'base64url').subarray(-32);
  const shown = JSON.stringify(inspectToken(token));
  for (const encoding of ['hex', 'base64', 'base64url', 'latin1'] as const) {
    assert.ok(!shown.includes(signature.toString(encoding).slice(0, 8)), encoding);
  }
});

test('two capabilities never share an id', async () => {
  const bench = new Bench();
  const tokens = await Promise.all(Array.from({ length: 100 }, () => bench.token()));
  assert.equal(new Set(tokens.map((token) => inspectToken(token).capability_id)).size, 100);
});

test('a lifetime is clamped', async () => {
  using clock = new TestClock();
  const bench = new Bench();
  const expiry = async (ttl_ms: number) => inspectToken(await bench.token({ ttl_ms })).expires_ms - clock.wall_ms;
  assert.equal(await expiry(0), CAPABILITY_LIMITS.ttl_ms_min);
  assert.equal(await expiry(-5), CAPABILITY_LIMITS.ttl_ms_min);
  assert.equal(await expiry(1234.4), 1234);
  assert.equal(await expiry(1e300), CAPABILITY_LIMITS.ttl_ms_max);
  await assert.rejects(expiry(Number.NaN), validation(/lifetime/));
});

test('a mistake in minting or narrowing is refused at once', async () => {
  const bench = new Bench();
  await assert.rejects(bench.token({ scopes: [] }), validation(/at least one scope/));
  await assert.rejects(bench.token({ scopes: ['kms:sign'] }), validation(/"kms:sign" is not a scope of storage/));
  await assert.rejects(bench.token({ subject: 'a.b' }), validation(/subject/));
  await assert.rejects(bench.token({ subject: '' }), validation(/subject/));
  await assert.rejects(bench.token({ epoch: -1 }), validation(/epoch/));
  await assert.rejects(bench.token({ epoch: 0.5 }), validation(/epoch/));
  await assert.rejects(bench.token({ caveats: ['tenant == acme'] }), validation(/malformed/));
  const token = await bench.token();
  assert.throws(() => attenuate(token, ['color = red']), validation(/unknown caveat/));
  assert.throws(() => attenuate(token, ['scopes in storage:gte']), validation(/"storage:gte" is not a scope/));
  assert.throws(() => attenuate(token, [{ key: 'tenant', tenant: 'two words' }]), validation(/malformed/));
  assert.throws(() => attenuate(token, [{ key: 'rate', count: 0, period_ms: 1000 }]), validation(/malformed/));
  assert.throws(
    () =>
      attenuate(
        token,
        Array.from({ length: 30 }, () => 'tenant = a'),
      ),
    validation(/more than 32 caveats/),
  );
  assert.throws(() => attenuate(token, [`name ^= ${'é'.repeat(512)}`]), validation(/limit is 1024/));
  assert.throws(() => attenuate('nonsense!', ['tenant = a']), validation(/not a capability/));
  assert.throws(
    () => inspectToken(encodeToken(newMacaroon(Buffer.from('k'), Buffer.from('id')))),
    validation(/foreign identifier/),
  );
});

test('a zeroed or short key cannot mint', () => {
  const init = { audience: 'storage', scopes: ['storage:get'], ttl_ms: 1000 } as const;
  assert.throws(() => mintWith(new Uint8Array(32), 'k1', init), /the key is live/);
  assert.throws(() => mintWith(new Uint8Array(31).fill(1), 'k1', init), /the key is live/);
  assert.throws(() => mintWith(new Uint8Array(32).fill(1), 'K1', init), /key id/);
});

test('attenuation narrows scopes, expiry and bytes to the strictest', async () => {
  using clock = new TestClock();
  const bench = new Bench();
  const token = attenuate(await bench.token({ scopes: ['storage:get', 'storage:put', 'storage:pin'] }), [
    'scopes in storage:put,storage:get,storage:admin',
    `expires < ${clock.wall_ms + 10}`,
    'scopes in storage:get',
    `expires < ${clock.wall_ms + 20}`,
    'bytes <= 100',
    'bytes <= 7',
    'bytes <= 50',
  ]);
  const shown = inspectToken(token);
  assert.deepEqual(shown.scopes, ['storage:get']);
  assert.equal(shown.expires_ms, clock.wall_ms + 10);
  assert.equal(shown.body_bytes_max, 7);
});

test('the npm package verifies capabilities, and those that it attenuates are accepted', async () => {
  const bench = new Bench();
  const token = await bench.token({ caveats: ['ip in 127.0.0.0/8', 'name ^= é/'] });
  const { key } = await bench.keys.current('storage', signal);
  const theirs = peer.importMacaroon(token);
  const seen: string[] = [];
  theirs.verify(key, (caveat) => (seen.push(caveat), null));
  assert.deepEqual(seen, inspectToken(token).texts);
  theirs.addFirstPartyCaveat('tenant = acme');
  const narrowed = peer.bytesToBase64(theirs.exportBinary());
  await bench.allowed(narrowed, { facts: { name: 'é/x', tenant: 'acme' } });
  const refusal = await bench.refused(narrowed, { facts: { name: 'é/x', tenant: 'globex' } });
  assert.deepEqual([refusal.code, refusal.reason], ['forbidden', 'capability is limited to tenant acme']);
});

test('a capability that the npm package mints with the audience key is valid', async () => {
  const bench = new Bench();
  const { key, key_id } = await bench.keys.current('storage', signal);
  const theirs = peer.newMacaroon({ rootKey: key, identifier: `ron1.${key_id}.me.0.AAAAAAAAAAAAAAAAAAAAAA` });
  for (const caveat of ['audience = storage', 'expires < 9007199254740991', 'scopes in storage:get'])
    theirs.addFirstPartyCaveat(caveat);
  const verdict = await bench.allowed(peer.bytesToBase64(theirs.exportBinary()));
  assert.deepEqual([verdict.capability_id, verdict.subject], ['AAAAAAAAAAAAAAAAAAAAAA', 'me']);
});

test('networks are values too', async () => {
  const bench = new Bench();
  const home = parseNetwork('10.0.0.0/8')!;
  const token = attenuate(await bench.token(), [{ key: 'ip', networks: [home] }]);
  assert.equal(inspectToken(token).texts.at(-1), 'ip in 10.0.0.0/8');
});

test('a capability names its issuers, nearest first; both formats have one spelling', async () => {
  await using keys = new MemoryKeySource();
  const claim = { audience: 'storage', scopes: ['storage:get'], ttl_ms: 5000 } as const;
  const ids = ['a', 'b', 'c', 'd', 'e'].map((letter) => letter.repeat(22));
  const identifierOf = (token: string): string =>
    Buffer.from(token, 'base64url')
      .toString('latin1')
      .match(/ron[12]\.[\w.-]+/)![0];
  for (let count = 0; count <= CAPABILITY_LIMITS.chain_max; count++) {
    const { token, capability_id } = await mint(keys, { ...claim, chain: ids.slice(0, count) }, signal);
    assert.deepEqual(inspectToken(token).chain, ids.slice(0, count));
    assert.equal(inspectToken(token).capability_id, capability_id);
    assert.ok(identifierOf(token).startsWith(count === 0 ? 'ron1.' : 'ron2.'));
  }
  await assert.rejects(mint(keys, { ...claim, chain: ids }, signal), validation(/at most 4 steps/));
  const { key_id, key } = await keys.current('storage', signal);
  for (const [format, chain] of [
    ['ron1', `.${ids[0]}`],
    ['ron2', ''],
    ['ron3', ''],
    ['ron2', `.${ids.join('.')}`],
  ])
    assert.throws(
      () => inspectToken(encodeToken(newMacaroon(key, Buffer.from(`${format}.${key_id}.x.0.${ids[0]}${chain}`)))),
      validation(/foreign identifier/),
    );
});

test('an epoch from the future is not minted', async () => {
  using clock = new TestClock();
  await using keys = new MemoryKeySource();
  const claim = { audience: 'storage', scopes: ['storage:get'], ttl_ms: 5000 } as const;
  await mint(keys, { ...claim, epoch: clock.wall_ms + CLOCK_SKEW_MS }, signal);
  await assert.rejects(
    mint(keys, { ...claim, epoch: clock.wall_ms + CLOCK_SKEW_MS + 1 }, signal),
    validation(/not in the future/),
  );
});
