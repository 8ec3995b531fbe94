import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inspect } from 'node:util';
import * as fc from 'fast-check';
import * as peer from '../../test/peer.ts';
import { CAPABILITY_LIMITS as LIMITS } from './limits.ts';
import { addCaveat, decodeMacaroon, encodeMacaroon, Macaroon, newMacaroon, verifyChain } from './macaroon.ts';
import { bearerToken, decodeToken, encodeToken } from './token.ts';

const numRuns = Number(process.env['RON_FUZZ_RUNS'] ?? 300);
const text = (value: string): Uint8Array => Buffer.from(value);
const hex = (value: Uint8Array): string => Buffer.from(value).toString('hex');

const rootKey = fc.uint8Array({ minLength: 1, maxLength: 80 });
const location = fc.option(fc.string({ minLength: 1, maxLength: 20 }), { nil: undefined });
/** The peer passes caveats to its check as text, so they are well-formed text here. */
const words = (maxLength: number): fc.Arbitrary<Uint8Array> =>
  fc.string({ unit: 'grapheme', minLength: 1, maxLength }).map(text);
const chain = fc.record({
  rootKey,
  identifier: fc.uint8Array({ minLength: 1, maxLength: 200 }),
  location,
  caveats: fc.array(words(60), { maxLength: 8 }),
});

function ours(init: {
  rootKey: Uint8Array;
  identifier: Uint8Array;
  location?: string | undefined;
  caveats: Uint8Array[];
}) {
  return init.caveats.reduce(addCaveat, newMacaroon(init.rootKey, init.identifier, init.location));
}

function theirs(init: Parameters<typeof ours>[0]): peer.PeerMacaroon {
  const { rootKey: key, identifier } = init;
  const macaroon = peer.newMacaroon({ rootKey: key, identifier, ...(init.location && { location: init.location }) });
  for (const caveat of init.caveats) macaroon.addFirstPartyCaveat(caveat);
  return macaroon;
}

function decoded(bytes: Uint8Array): Macaroon {
  const result = decodeMacaroon(bytes);
  assert.ok(result.ok, result.ok ? '' : result.reason);
  return result.value;
}

function refusal(bytes: Uint8Array): string {
  const result = decodeMacaroon(bytes);
  assert.equal(result.ok, false);
  return result.ok ? '' : result.reason;
}

test('the signatures are those of the libmacaroons tutorial', () => {
  const key = text('this is our super secret key; only we should know it');
  let macaroon = newMacaroon(key, text('we used our secret key'), 'http://mybank/');
  assert.equal(hex(macaroon.signature), 'e3d9e02908526c4c0039ae15114115d97fdd68bf2ba379b342aaf0f617d0552f');
  macaroon = addCaveat(macaroon, text('account = 3735928559'));
  assert.equal(hex(macaroon.signature), '1efe4763f290dbce0c1d08477367e11f4eee456a64933cf662d79772dbb82128');
  macaroon = addCaveat(macaroon, text('time < 2020-01-01T00:00'));
  assert.equal(hex(macaroon.signature), 'b5f06c8c8ef92f6c82c6ff282cd1f8bd1849301d09a2db634ba182536a611c49');
  macaroon = addCaveat(macaroon, text('email = alice@example.org'));
  assert.equal(hex(macaroon.signature), 'ddf553e46083e55b8d71ab822be3d8fcf21d6bf19c40d617bb9fb438934474b6');
});

test('both implementations write the same bytes', () => {
  fc.assert(
    fc.property(chain, (init) => {
      assert.equal(hex(encodeMacaroon(ours(init))), hex(theirs(init).exportBinary()));
    }),
    { numRuns },
  );
});

test('each verifies macaroons of the other, and neither with another key', () => {
  fc.assert(
    fc.property(chain, rootKey, (init, otherKey) => {
      const fromThem = decoded(theirs(init).exportBinary());
      assert.equal(verifyChain(fromThem, init.rootKey), true);
      assert.deepEqual(
        fromThem.caveats.map((caveat) => hex(caveat.identifier)),
        init.caveats.map(hex),
      );
      const seen: string[] = [];
      const fromUs = peer.importMacaroon(Uint8Array.from(encodeMacaroon(ours(init))));
      fromUs.verify(init.rootKey, (caveat) => {
        seen.push(hex(text(caveat)));
        return null;
      });
      assert.deepEqual(seen, init.caveats.map(hex));
      if (hex(otherKey) === hex(init.rootKey)) return;
      // HMAC pads short keys with zeros and hashes long ones, but the key here is always data, never an HMAC key.
      assert.equal(verifyChain(fromThem, otherKey), false);
      assert.throws(() => fromUs.verify(otherKey, () => null));
    }),
    { numRuns },
  );
});

test('a token that one side attenuated verifies on the other', () => {
  fc.assert(
    fc.property(chain, words(60), words(60), (init, first, second) => {
      const byUs = addCaveat(decoded(theirs(init).exportBinary()), first);
      const byThem = peer.importMacaroon(encodeToken(byUs));
      byThem.verify(init.rootKey, () => null);
      byThem.addFirstPartyCaveat(second);
      const back = decodeToken(peer.bytesToBase64(byThem.exportBinary()));
      assert.ok(back.ok);
      assert.equal(verifyChain(back.value, init.rootKey), true);
      assert.equal(back.value.caveats.length, init.caveats.length + 2);
    }),
    { numRuns },
  );
});

test('decoding and encoding yields the same bytes, including third-party caveats', () => {
  fc.assert(
    fc.property(chain, location, (init, where) => {
      const macaroon = theirs(init);
      macaroon.addThirdPartyCaveat(text('their key'), 'ask them', where);
      const bytes = macaroon.exportBinary();
      const ourView = decoded(bytes);
      assert.equal(hex(encodeMacaroon(ourView)), hex(bytes));
      assert.equal(ourView.caveats.at(-1)?.location, where);
      assert.equal(verifyChain(ourView, init.rootKey), false, 'a third-party caveat cannot be discharged');
    }),
    { numRuns },
  );
});

test('a third-party caveat never verifies, even if it is signed like a first-party one', () => {
  const key = text('k');
  const honest = addCaveat(newMacaroon(key, text('id')), text('c'));
  const dressed = new Macaroon({
    identifier: honest.identifier,
    caveats: [{ identifier: text('c'), vid: text('v') }],
    signature: honest.signature,
  });
  assert.equal(verifyChain(honest, key), true);
  assert.equal(verifyChain(dressed, key), false);
});

test('arbitrary bytes are decoded or refused with a reason, and every decoded macaroon has one encoding', () => {
  const bytes = fc.oneof(
    fc.uint8Array({ maxLength: 300 }),
    fc.array(fc.constantFrom(0, 1, 2, 4, 6, 32, 0x80, 0xff), { maxLength: 80 }).map((some) => Uint8Array.from(some)),
  );
  fc.assert(
    fc.property(bytes, (input) => {
      const result = decodeMacaroon(input);
      if (result.ok) assert.equal(hex(encodeMacaroon(result.value)), hex(input));
      else assert.ok(result.reason.length > 0);
    }),
    { numRuns: numRuns * 20 },
  );
});

test('a modified macaroon is refused, or is the only encoding of another macaroon', () => {
  const change = fc.record({ at: fc.nat(), drop: fc.nat(3), insert: fc.uint8Array({ maxLength: 3 }) });
  fc.assert(
    fc.property(chain, fc.array(change, { minLength: 1, maxLength: 3 }), (init, changes) => {
      let bytes: Uint8Array = encodeMacaroon(ours(init));
      for (const { at, drop, insert } of changes) {
        const where = at % (bytes.length + 1);
        bytes = Buffer.concat([bytes.subarray(0, where), insert, bytes.subarray(where + drop)]);
      }
      const result = decodeMacaroon(bytes);
      if (result.ok) assert.equal(hex(encodeMacaroon(result.value)), hex(bytes));
    }),
    { numRuns: numRuns * 5 },
  );
});

test('no single flipped bit of a token without locations verifies', () => {
  const key = text('root');
  const bytes = encodeMacaroon(ours({ rootKey: key, identifier: text('id'), caveats: [text('a = b'), text('c < 9')] }));
  for (let bit = 0; bit < bytes.length * 8; bit++) {
    const flipped = Uint8Array.from(bytes);
    flipped[bit >> 3]! ^= 1 << (bit & 7);
    const result = decodeMacaroon(flipped);
    assert.ok(!result.ok || !verifyChain(result.value, key), `bit ${bit}`);
  }
});

test('lengths are bounded and have one encoding', () => {
  const signature = [6, 32, ...new Uint8Array(32)];
  const withId = (...length: number[]): Uint8Array => Uint8Array.from([2, 2, ...length, 0x61, 0, 0, ...signature]);
  assert.equal(decoded(withId(1)).identifier.length, 1);
  assert.match(refusal(withId(0x81, 0)), /padded/);
  assert.match(refusal(withId(0x81, 0x80, 0)), /too large/);
  assert.match(refusal(withId(0xff, 0xff, 0xff, 0xff, 0x0f)), /too large/);
  assert.match(refusal(withId(0xff, 0x7f)), /identifier has 16383 bytes, the limit is 256/);
  assert.match(refusal(withId(0x7f)), /truncated/);
});

test('field order, ends and signature size are exact', () => {
  const signature = [6, 32, ...new Uint8Array(32)];
  const cases: [RegExp, number[]][] = [
    [/truncated/, []],
    [/version 2/, [1, 2, 1, 0x61, 0, 0, ...signature]],
    [/the identifier is missing/, [2, 1, 1, 0x61, 0, 0, ...signature]],
    [/out of order/, [2, 2, 1, 0x61, 1, 1, 0x61, 0, 0, ...signature]],
    [/the caveat is missing/, [2, 2, 1, 0x61, 0, 4, 1, 0x61, 0, 0, ...signature]],
    [/the caveat is missing/, [2, 2, 1, 0x61, 0, ...signature]],
    [/the signature is missing/, [2, 2, 1, 0x61, 0, 0]],
    [/32 bytes/, [2, 2, 1, 0x61, 0, 0, 6, 31, ...new Uint8Array(31)]],
    [/limit is 32/, [2, 2, 1, 0x61, 0, 0, 6, 33, ...new Uint8Array(33)]],
    [/follow/, [2, 2, 1, 0x61, 0, 0, ...signature, 0]],
    [/location is empty/, [2, 1, 0, 2, 1, 0x61, 0, 0, ...signature]],
    [/not UTF-8/, [2, 1, 1, 0xff, 2, 1, 0x61, 0, 0, ...signature]],
    [/verification id is empty/, [2, 2, 1, 0x61, 0, 2, 1, 0x61, 4, 0, 0, 0, ...signature]],
  ];
  for (const [reason, bytes] of cases) assert.match(refusal(Uint8Array.from(bytes)), reason);
});

test('the number and size of caveats and the whole token are bounded', () => {
  const start = newMacaroon(text('k'), text('id'));
  const many = (count: number, size: number): Uint8Array =>
    encodeMacaroon(Array.from({ length: count }, () => new Uint8Array(size)).reduce(addCaveat, start));
  assert.equal(decodeMacaroon(many(LIMITS.caveats_max, 10)).ok, true);
  assert.match(refusal(many(LIMITS.caveats_max + 1, 10)), /more than 32 caveats/);
  assert.equal(decodeMacaroon(many(1, LIMITS.caveat_bytes_max)).ok, true);
  assert.match(refusal(many(1, LIMITS.caveat_bytes_max + 1)), /caveat has 1025 bytes, the limit is 1024/);
  assert.match(refusal(many(4, 1020)), /the limit is 4096/);
});

test('a token has one text encoding', () => {
  const token = encodeToken(newMacaroon(text('k'), text('i')));
  assert.equal(decodeToken(token).ok, true);
  // 39 bytes make 52 characters, so the text of 38 or 40 bytes has unused bits in its last character.
  const odd = encodeToken(newMacaroon(text('k'), text('id')));
  const last = odd.at(-1) ?? '';
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
  const stray = odd.slice(0, -1) + alphabet.charAt(alphabet.indexOf(last) + 1);
  assert.notEqual(odd.length % 4, 0);
  assert.deepEqual(Buffer.from(stray, 'base64url'), Buffer.from(odd, 'base64url'));
  for (const wrong of [
    stray,
    `${odd}=`,
    ` ${token}`,
    `${token}\n`,
    `${token.slice(0, 4)} ${token.slice(4)}`,
    `${odd}+`,
  ]) {
    assert.deepEqual(decodeToken(wrong), { ok: false, reason: 'it is not base64url without padding' });
  }
  assert.match(JSON.stringify(decodeToken('A'.repeat(5463))), /5463 characters, the limit is 5462/);
});

test('arbitrary text is not a token and does not throw', () => {
  fc.assert(
    fc.property(fc.oneof(fc.string({ unit: 'binary-ascii' }), fc.base64String()), (input) => {
      const result = decodeToken(input);
      if (result.ok) assert.equal(encodeToken(result.value), input);
    }),
    { numRuns: numRuns * 3 },
  );
});

test('only the bearer scheme is accepted, in any case', () => {
  assert.equal(bearerToken('Bearer abc'), 'abc');
  assert.equal(bearerToken('bEARER abc'), 'abc');
  for (const header of [undefined, '', 'Bearer', 'Bearer ', 'Basic abc', 'Bearerabc', ' Bearer abc']) {
    assert.equal(bearerToken(header), undefined);
  }
});

test('a printed or logged macaroon shows no signature', () => {
  const macaroon = addCaveat(newMacaroon(text('k'), text('id')), text('a = b'));
  for (const shown of [inspect({ macaroon }, { depth: 9, showHidden: true }), JSON.stringify({ macaroon })]) {
    assert.match(shown, /Macaroon\(1 caveats\)/);
    assert.ok(!shown.includes(hex(macaroon.signature).slice(0, 8)));
    assert.ok(!shown.includes(String(macaroon.signature[0])) || !shown.includes(String(macaroon.signature[1])));
  }
});
