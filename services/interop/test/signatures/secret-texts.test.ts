/** Secrets as operators enter them: decoded as their scheme says, and never repeated by an error. */
import assert from 'node:assert/strict';
import type { KeyObject } from 'node:crypto';
import { test } from 'node:test';
import fc from 'fast-check';
import { SCHEMES, type SchemeName } from '@ron/proto';
import { keyOfSecret, parseSecret } from '../../src/signatures/secret-text.ts';
import { fuzzRuns } from '@ron/testkit';
import { ed25519, PUBLIC_KEY, TIME, verify } from './requests.ts';

const TEXT = 'a secret of sixteen';
const publicKeyText = `whpk_${Buffer.from(PUBLIC_KEY.export({ format: 'jwk' }).x!, 'base64url').toString('base64')}`;

const refusal = (scheme: SchemeName, text: string): string => {
  try {
    parseSecret(scheme, text);
  } catch (error) {
    assert.equal((error as { code?: string }).code, 'validation');
    return (error as Error).message;
  }
  return assert.fail(`${scheme} accepts ${JSON.stringify(text)}`);
};

test('in all schemes but standard, the secret is its text, also after whsec_', () => {
  for (const scheme of ['github', 'slack', 'stripe', 'generic'] as const) {
    for (const text of [TEXT, `whsec_${'A'.repeat(32)}`, 'grüße grüße grüße'])
      assert.deepEqual(parseSecret(scheme, text), { kind: 'hmac', bytes: Buffer.from(text) });
  }
});

test('in standard, whsec_ is the base64 of an HMAC key and whpk_ that of a public key', async () => {
  const bytes = Buffer.from(TEXT);
  assert.deepEqual(parseSecret('standard', `whsec_${bytes.toString('base64')}`), { kind: 'hmac', bytes });
  const secret = parseSecret('standard', publicKeyText);
  assert.equal(secret.kind, 'ed25519');
  const body = Buffer.from('x');
  const verified = await verify({
    scheme: 'standard',
    headers: [
      ['webhook-id', 'a'],
      ['webhook-timestamp', TIME],
      ['webhook-signature', `v1a,${ed25519(`a.${TIME}.`, body).toString('base64')}`],
    ],
    body,
    secrets: [{ version: 1, kind: secret.kind, key: keyOfSecret(secret) }],
  });
  assert.equal(verified.ok, true);
});

test('secrets that would not do are refused with the reason', () => {
  const base64 = (bytes: number): string => Buffer.alloc(bytes, 7).toString('base64');
  const cases: readonly (readonly [SchemeName, string, RegExp])[] = [
    ['github', '', /has 0 bytes/],
    ['github', 'x'.repeat(15), /has 15 bytes/],
    ['github', 'x'.repeat(513), /has 513 bytes/],
    ['github', ` ${TEXT}`, /white space/],
    ['github', `${TEXT}\n`, /white space/],
    ['github', `${TEXT}\ud800`, /not valid Unicode/],
    ['standard', TEXT, /starts with whsec_ or whpk_/],
    ['standard', `whsec_${base64(15)}`, /has 15 bytes/],
    ['standard', `whsec_${base64(513)}`, /has 513 bytes/],
    ['standard', 'whsec_', /not base64/],
    ['standard', `whsec_${base64(17).slice(0, -1)}`, /not base64 with padding/],
    ['standard', `whsec_${'-_'.repeat(16)}`, /not base64/],
    ['standard', `whpk_${base64(31)}`, /32 bytes/],
    ['standard', `whpk_${base64(33)}`, /32 bytes/],
    ['standard', `whsk_${base64(64)}`, /private key/],
    ['standard', `WHSEC_${base64(32)}`, /starts with/],
  ];
  for (const [scheme, text, reason] of cases) assert.match(refusal(scheme, text), reason, JSON.stringify(text));
  parseSecret('github', 'x'.repeat(16));
  parseSecret('github', 'x'.repeat(512));
});

/** The points of small order, each with both signs of x. */
const SMALL_ORDER = [
  '0000000000000000000000000000000000000000000000000000000000000000',
  '0100000000000000000000000000000000000000000000000000000000000000',
  '26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05',
  'c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a',
  'ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
  'edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
  'eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
].flatMap((hex) => [hex, hex.slice(0, 62) + (Number.parseInt(hex.slice(62), 16) | 0x80).toString(16)]);

/** The base point and 1, and the neutral point and 0: a lenient verifier accepts them for such a key and any body. */
const FORGED = ['58'.padEnd(64, '6') + '01'.padEnd(64, '0'), '01'.padEnd(64, '0') + '0'.repeat(64)];

test('a public key of small order verifies nothing', async () => {
  for (const hex of SMALL_ORDER) {
    for (const forged of FORGED) {
      const key = keyOfSecret({ kind: 'ed25519', bytes: Buffer.from(hex, 'hex') });
      assert.equal(await verifies(key, Buffer.from(forged, 'hex')), false, `${hex} ${forged}`);
    }
  }
});

test('a public key that is not a point of the curve verifies nothing, and does not throw', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.uint8Array({ minLength: 32, maxLength: 32 }),
      fc.uint8Array({ minLength: 64, maxLength: 64 }),
      async (bytes, signature) => {
        const key = keyOfSecret({ kind: 'ed25519', bytes });
        assert.equal(await verifies(key, signature), false);
      },
    ),
    fuzzRuns(200),
  );
});

async function verifies(key: KeyObject, signature: Uint8Array): Promise<boolean> {
  const verified = await verify({
    scheme: 'standard',
    headers: [
      ['webhook-id', 'a'],
      ['webhook-timestamp', TIME],
      ['webhook-signature', `v1a,${Buffer.from(signature).toString('base64')}`],
    ],
    body: Buffer.from('x'),
    secrets: [{ version: 1, kind: 'ed25519', key }],
  });
  return verified.ok;
}

test('any text is a secret or is refused without being repeated', () => {
  const texts = fc.oneof(
    fc.string({ unit: 'binary', maxLength: 600 }),
    fc.base64String({ maxLength: 600 }).map((text) => `whsec_${text}`),
    fc.base64String({ maxLength: 60 }).map((text) => `whpk_${text}`),
  );
  fc.assert(
    fc.property(fc.constantFrom(...SCHEMES), texts, (scheme, text) => {
      try {
        const { kind, bytes } = parseSecret(scheme, text);
        assert.ok(kind === 'ed25519' ? bytes.length === 32 : bytes.length >= 16 && bytes.length <= 512);
      } catch (error) {
        assert.equal((error as { code?: string }).code, 'validation');
        if (text.length > 6) assert.ok(!(error as Error).message.includes(text));
      }
    }),
    fuzzRuns(2000),
  );
});

test('the key does not change when the bytes of the secret are zeroed', () => {
  const secret = parseSecret('github', TEXT);
  const key = keyOfSecret(secret);
  secret.bytes.fill(0);
  assert.equal(key.export().toString(), TEXT);
});
