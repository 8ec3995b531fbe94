import type { AccessRequest } from '@ron/proto';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as peer from '../../test/peer.ts';
import { Bench, signal, TestClock } from '../../test/support.ts';
import { attenuate, mintWith } from '../capability/capability.ts';
import { Checker } from './checker.ts';
import type { KeySource } from '../keys/key-source.ts';
import { AudienceKey } from '../keys/key-ring.ts';
import { addCaveat, newMacaroon } from '../capability/macaroon.ts';
import { Revocations, subjectTag } from '../revocations/revocations.ts';
import { decodeToken, encodeToken } from '../capability/token.ts';

const HEX = '0123456789abcdef'.repeat(4);

test('each caveat refuses exactly the requests that it restricts, with a helpful reason', async () => {
  const bench = new Bench();
  const root = await bench.token();
  const address = `b3:${HEX}`;
  const cases: [caveat: string, good: Partial<AccessRequest>, bad: Partial<AccessRequest>, reason: RegExp][] = [
    ['scopes in storage:get', {}, { scope: 'storage:put' }, /^capability lacks scope storage:put; it has storage:get$/],
    [
      'address ^= b3:0123',
      { facts: { address } },
      { facts: { address: `b3:1${HEX.slice(1)}` } },
      /^capability is limited to an address that begins with b3:0123$/,
    ],
    ['address ^= b3:0123', { facts: { address } }, {}, /this request states no address$/],
    [
      'name ^= photos/',
      { facts: { name: 'photos/a' } },
      { facts: { name: 'my photos/a' } },
      /a name that begins with photos\/$/,
    ],
    ['label ^= ron/', { facts: { label: 'ron/x' } }, { facts: { name: 'ron/x' } }, /states no label$/],
    [
      'tenant = acme',
      { facts: { tenant: 'acme' } },
      { facts: { tenant: 'acme2' } },
      /^capability is limited to tenant acme$/,
    ],
    ['tenant = acme', { facts: { tenant: 'acme' } }, { facts: { tenant: undefined } }, /states no tenant$/],
    ['bytes <= 10', { body_bytes: 10 }, { body_bytes: 11 }, /^capability allows bodies of at most 10 bytes$/],
    [
      'ip in 10.0.0.0/8,::1',
      { source_ip: '::1' },
      { source_ip: '11.0.0.1' },
      /^capability is limited to 10.0.0.0\/8, ::1; this request came from 11.0.0.1$/,
    ],
    ['ip in 10.0.0.0/8', { source_ip: '::ffff:10.9.8.7' }, { source_ip: 'unknown' }, /came from unknown$/],
    [
      `body = sha256:${HEX}`,
      { body_hash: `sha256:${HEX}` },
      { body_hash: `sha256:${HEX.replace('0', '1')}` },
      /the hash differs$/,
    ],
    [
      `body = sha256:${HEX}`,
      { body_hash: `b3:${HEX.replace('0', '1')}` },
      { body_hash: 'sha256:' },
      /the hash differs$/,
    ],
  ];
  for (const [caveat, good, bad, reason] of cases) {
    const token = attenuate(root, [caveat]);
    await bench.allowed(token, good);
    const refusal = await bench.refused(token, bad);
    assert.equal(refusal.code, 'forbidden', caveat);
    assert.match(refusal.reason, reason);
    await bench.allowed(root, bad);
  }
});

test('no token, a wrong scheme, garbage and too long a token are unauthorized', async () => {
  const { checker } = new Bench();
  const reason = async (authorization: string | undefined): Promise<string> => {
    const verdict = await checker.checkHeaders({ authorization, scope: 'storage:get', source_ip: '::1' }, signal);
    assert.ok(!verdict.ok && verdict.code === 'unauthorized');
    return verdict.reason;
  };
  assert.match(await reason(undefined), /^a capability is required: send Authorization: Bearer/);
  assert.match(await reason('Basic dXNlcjpwYXNz'), /a capability is required/);
  assert.match(await reason('Bearer AAAA'), /^not a capability: it is not a macaroon of version 2$/);
  assert.match(await reason(`Bearer ${'A'.repeat(5463)}`), /at most 5462 characters/);
  assert.match(await reason(`Bearer ${'A'.repeat(5462)}`), /^not a capability/);
});

test('a capability of another audience, key or source does not verify', async () => {
  const bench = new Bench();
  const kms = await bench.token({ audience: 'kms', scopes: ['kms:sign'] });
  assert.deepEqual(await bench.refused(kms), {
    ok: false,
    code: 'unauthorized',
    reason: 'capability is for kms; this is storage',
  });
  // The same claim, signed with the key that the kms service holds: it cannot mint for storage.
  const kmsKey = await bench.keys.current('kms', signal);
  const claim = { audience: 'storage', scopes: ['storage:get'], ttl_ms: 60_000 } as const;
  const forged = mintWith(kmsKey.key, kmsKey.key_id, claim).token;
  assert.match((await bench.refused(forged)).reason, /^capability does not verify: its signature is invalid$/);
  const stranger = await new Bench().token();
  assert.match((await bench.refused(stranger)).reason, /its key is unknown or retired$/);
});

test('attenuating to another audience refuses everything', async () => {
  const bench = new Bench();
  const token = attenuate(await bench.token(), ['audience = kms']);
  assert.equal((await bench.refused(token)).reason, 'capability is for kms; this is storage');
  assert.equal((await bench.refused(token)).code, 'unauthorized');
});

test('unknown, malformed, binary and third-party caveats are refused even if the chain is valid', async () => {
  const bench = new Bench();
  const { key } = await bench.keys.current('storage', signal);
  const token = await bench.token();
  const cases: [(macaroon: peer.PeerMacaroon) => void, RegExp, code?: string][] = [
    [(macaroon) => macaroon.addFirstPartyCaveat('color = red'), /unknown caveat "color = red"$/],
    [(macaroon) => macaroon.addFirstPartyCaveat('tenant=acme'), /unknown caveat/],
    [(macaroon) => macaroon.addFirstPartyCaveat('\u{feff}scopes in storage:get'), /unknown caveat/],
    [(macaroon) => macaroon.addFirstPartyCaveat('bytes <= many'), /malformed caveat/],
    [(macaroon) => macaroon.addFirstPartyCaveat(Uint8Array.of(0xff, 0xfe)), /a caveat is not text$/],
    [(macaroon) => macaroon.addThirdPartyCaveat(key, 'ask them', ''), /it has a third-party caveat$/, 'unauthorized'],
    [(macaroon) => macaroon.addThirdPartyCaveat(key, 'ask them', 'there'), /it has a location/, 'unauthorized'],
  ];
  for (const [add, reason, code = 'forbidden'] of cases) {
    const macaroon = peer.importMacaroon(token);
    add(macaroon);
    const refusal = await bench.refused(peer.bytesToBase64(macaroon.exportBinary()));
    assert.match(refusal.reason, reason);
    assert.equal(refusal.code, code);
  }
});

test('a correctly signed macaroon is not a capability unless it is bounded', async () => {
  const bench = new Bench();
  const { key, key_id } = await bench.keys.current('storage', signal);
  const bare = encodeToken(newMacaroon(key, Buffer.from(`ron1.${key_id}.-.0.AAAAAAAAAAAAAAAAAAAAAA`)));
  assert.match((await bench.refused(bare)).reason, /does not begin with audience, expiry and scopes$/);
  const [audience, expires, scopes] = ['audience = storage', 'expires < 9007199254740991', 'scopes in storage:get'];
  const macaroon = decodeToken(bare);
  assert.ok(macaroon.ok);
  for (const caveats of [
    [audience, expires],
    [audience, scopes, expires],
    [expires, audience, scopes],
    [audience, expires, expires],
    [audience, scopes, scopes],
  ]) {
    const partial = encodeToken(caveats.map((text) => Buffer.from(text)).reduce(addCaveat, macaroon.value));
    assert.match((await bench.refused(partial)).reason, /does not begin with audience, expiry and scopes$/);
  }
  await bench.allowed(
    encodeToken([audience, expires, scopes].map((text) => Buffer.from(text)).reduce(addCaveat, macaroon.value)),
  );
  const other = encodeToken(newMacaroon(key, Buffer.from('hello')));
  assert.match((await bench.refused(other)).reason, /it has a foreign identifier$/);
  const located = encodeToken(newMacaroon(key, Buffer.from(`ron1.${key_id}.-.0.AAAAAAAAAAAAAAAAAAAAAA`), 'here'));
  assert.match((await bench.refused(located)).reason, /it has a location$/);
});

test('no token with one changed bit, in its text or its bytes, is allowed', async () => {
  const bench = new Bench();
  const token = await bench.token({ caveats: ['ip in 127.0.0.0/8'] });
  await bench.allowed(token);
  const bytes = Buffer.from(token, 'base64url');
  for (let bit = 0; bit < bytes.length * 8; bit++) {
    const changed = Buffer.from(bytes);
    changed[bit >> 3]! ^= 1 << (bit & 7);
    assert.equal((await bench.refused(changed.toString('base64url'))).code, 'unauthorized', `bit ${bit}`);
  }
  const text = Buffer.from(token, 'latin1');
  for (let bit = 0; bit < text.length * 8; bit++) {
    const changed = Buffer.from(text);
    changed[bit >> 3]! ^= 1 << (bit & 7);
    assert.equal((await bench.refused(changed.toString('latin1'))).code, 'unauthorized', `text bit ${bit}`);
  }
});

test('no refusal reveals the token, its signature or a key', async () => {
  const bench = new Bench();
  const root = await bench.token();
  const tokens = [
    root,
    attenuate(root, ['tenant = x']),
    root.slice(0, -1),
    `${root}A`,
    attenuate(root, ['expires < 5']),
  ];
  for (const token of tokens) {
    const { reason } = await bench.refused(token, { scope: 'storage:admin' });
    for (let at = 0; at + 12 <= token.length; at++) assert.ok(!reason.includes(token.slice(at, at + 12)), reason);
  }
});

test('a cached token is checked without a promise', async () => {
  const bench = new Bench();
  const request = { authorization: `Bearer ${await bench.token()}`, scope: 'storage:get', source_ip: '::1' } as const;
  assert.ok(bench.checker.checkHeaders(request, signal) instanceof Promise);
  assert.equal(bench.checker.sizes.tokens, 0);
  await bench.checker.checkHeaders(request, signal);
  const verdict = bench.checker.checkHeaders(request, signal);
  assert.ok(!(verdict instanceof Promise) && verdict.ok);
  const bad = { ...request, authorization: `Bearer ${corrupt(await bench.token())}` };
  await bench.checker.checkHeaders(bad, signal);
  const again = bench.checker.checkHeaders(bad, signal);
  assert.ok(!(again instanceof Promise) && !again.ok);
});

test('a cached token expires to the millisecond, even if the clock jumps', async () => {
  using clock = new TestClock();
  const bench = new Bench();
  const start_ms = clock.wall_ms;
  const token = await bench.token({ ttl_ms: 5000 });
  await bench.allowed(token);
  clock.wall_ms = start_ms + 4999;
  await bench.allowed(token);
  clock.wall_ms = start_ms + 5000;
  assert.deepEqual(await bench.refused(token), {
    ok: false,
    code: 'unauthorized',
    reason: 'capability expired 0 ms ago',
    cause: 'expired',
  });
  clock.wall_ms = start_ms + 3_600_000;
  assert.equal((await bench.refused(token)).reason, 'capability expired 3595 s ago');
  clock.wall_ms = start_ms - 3_600_000;
  await bench.allowed(token);
  assert.equal(bench.checker.sizes.tokens, 1);
});

test('a cached token becomes invalid with the epoch of its subject, and with the epoch of all subjects', async () => {
  const epochs = new Revocations();
  const revoke = (version: number, all: number, alice: number): void =>
    epochs.apply({ version, all, subjects: { [subjectTag('alice')]: alice }, ids: {} });
  const bench = new Bench({ epochs });
  const alice = await bench.token({ subject: 'alice', epoch: 3 });
  const bob = await bench.token({ subject: 'bob', epoch: 3 });
  await bench.allowed(alice);
  await bench.allowed(bob);
  revoke(1, 0, 3);
  await bench.allowed(alice);
  revoke(2, 0, 4);
  assert.deepEqual(await bench.refused(alice), {
    ok: false,
    code: 'unauthorized',
    reason: 'capability was revoked',
    cause: 'revoked',
  });
  await bench.allowed(bob);
  await bench.allowed(await bench.token({ subject: 'alice', epoch: 4 }));
  revoke(3, 4, 4);
  assert.equal((await bench.refused(bob)).reason, 'capability was revoked');
  await bench.allowed(await bench.token({ subject: 'alice', epoch: 4 }));
});

test('a cached token becomes invalid with its key, and tokens of other keys stay valid', async () => {
  const bench = new Bench();
  const token = await bench.token();
  await bench.allowed(token);
  await bench.keys.close();
  assert.equal((await bench.refused(token)).code, 'unauthorized');
  assert.equal(bench.checker.sizes.tokens, 0);
});

test('a cached invalid signature is dropped when the keys change', async () => {
  const { token, key } = forgeable();
  let current: Uint8Array = new Uint8Array(32).fill(9);
  let generation = 0;
  const checker = new Checker({
    audience: 'storage',
    keys: source({ generation: () => generation, key: async () => current }),
  });
  const request = { authorization: `Bearer ${token}`, scope: 'storage:get', source_ip: '::1' } as const;
  assert.equal((await checker.checkHeaders(request, signal)).ok, false);
  assert.equal(checker.sizes.bad_tokens, 1);
  current = key;
  assert.equal((await checker.checkHeaders(request, signal)).ok, false, 'remembered');
  generation += 1;
  assert.equal((await checker.checkHeaders(request, signal)).ok, true);
});

test('a key that is zeroed while a check waits for it proves nothing', async () => {
  const zeros = new Uint8Array(32);
  const forged = encodedWith(zeros);
  for (const movesGeneration of [true, false]) {
    const live = new Uint8Array(32).fill(7);
    let generation = 0;
    let asked = 0;
    const keys = source({
      generation: () => generation,
      key: () => {
        asked += 1;
        if (asked > 1) return Promise.resolve(undefined);
        return new Promise((resolve) => {
          resolve(live);
          // After the answer, before the waiting check continues.
          live.fill(0);
          if (movesGeneration) generation += 1;
        });
      },
    });
    const checker = new Checker({ audience: 'storage', keys });
    const verdict = await checker.checkHeaders(
      { authorization: `Bearer ${forged}`, scope: 'storage:get', source_ip: '::1' },
      signal,
    );
    assert.ok(!verdict.ok);
    assert.match(verdict.reason, /unknown or retired/);
    assert.equal(asked, movesGeneration ? 2 : 1);
  }
});

test('a key that is replaced while a check waits for it is fetched again', async () => {
  const { token, key } = forgeable();
  let generation = 0;
  const keys = source({
    generation: () => generation,
    key: async () => {
      if (generation > 0) return undefined;
      generation += 1;
      return key;
    },
  });
  const checker = new Checker({ audience: 'storage', keys });
  const verdict = await checker.checkHeaders(
    { authorization: `Bearer ${token}`, scope: 'storage:get', source_ip: '::1' },
    signal,
  );
  assert.equal(verdict.ok, false);
  assert.equal(checker.sizes.tokens, 0);
});

test('keys that never stop changing end the check with an error', async () => {
  const { token, key } = forgeable();
  let generation = 0;
  const keys = source({ generation: () => generation, key: async () => ((generation += 1), key) });
  const checker = new Checker({ audience: 'storage', keys });
  await assert.rejects(
    async () =>
      checker.checkHeaders({ authorization: `Bearer ${token}`, scope: 'storage:get', source_ip: '::1' }, signal),
    { code: 'not_ready' },
  );
});

test('an aborted request and a failing key source reject, and nothing is cached', async () => {
  const bench = new Bench();
  const token = await bench.token();
  const gone = AbortSignal.abort(new Error('client left'));
  const request = { authorization: `Bearer ${token}`, scope: 'storage:get', source_ip: '::1' } as const;
  await assert.rejects(async () => bench.checker.checkHeaders(request, gone), /client left/);
  assert.deepEqual(bench.checker.sizes, { tokens: 0, bad_tokens: 0, rates: 0 });
  await bench.allowed(token);
});

test('an allowed verdict names the capability, its subject and its remaining scopes', async () => {
  const bench = new Bench();
  const root = await bench.token({ subject: 'alice' });
  const verdict = await bench.allowed(attenuate(root, ['scopes in storage:get,storage:pin']));
  assert.equal(verdict.subject, 'alice');
  assert.deepEqual(verdict.scopes, ['storage:get']);
  assert.equal(verdict.capability_id, (await bench.allowed(root)).capability_id);
});

function corrupt(token: string): string {
  const bytes = Buffer.from(token, 'base64url');
  bytes[bytes.length - 1]! ^= 1;
  return bytes.toString('base64url');
}

const CLAIM = { audience: 'storage', scopes: ['storage:get'], ttl_ms: 60_000 } as const;

function forgeable(): { token: string; key: Uint8Array } {
  const key = new Uint8Array(32).fill(5);
  return { token: mintWith(key, 'k1', CLAIM).token, key };
}

/** A capability signed with a key that `mint` refuses. */
function encodedWith(key: Uint8Array): string {
  const macaroon = peer.newMacaroon({ rootKey: key, identifier: 'ron1.k1.-.0.AAAAAAAAAAAAAAAAAAAAAA' });
  for (const caveat of ['audience = storage', 'expires < 9007199254740991', 'scopes in storage:get'])
    macaroon.addFirstPartyCaveat(caveat);
  return peer.bytesToBase64(macaroon.exportBinary());
}

function source(init: { generation: () => number; key: () => Promise<Uint8Array | undefined> }): KeySource {
  return {
    get generation() {
      return init.generation();
    },
    key: init.key,
    current: async () => new AudienceKey('k1', new Uint8Array(32)),
    close: async () => {},
    [Symbol.asyncDispose]: async () => {},
  };
}
