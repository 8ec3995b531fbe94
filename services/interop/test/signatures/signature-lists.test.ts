/** Headers with several signatures, and ids that would allow two splits. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { LiveSecret } from '../../src/signatures/verify.ts';
import {
  accepted,
  ed25519,
  hmac,
  hmacSecret,
  publicSecret,
  refused,
  SECRET,
  TIME,
  VARIANTS,
  verify,
  withHeader,
  type Sent,
} from './requests.ts';

const BODY = Buffer.from('{"id":"evt_1", "type":"invoice.paid"}');

const stripeHeader = (...elements: string[]): Sent => ({
  scheme: 'stripe',
  headers: [['Stripe-Signature', elements.join(',')]],
  body: BODY,
});
const V1 = `v1=${hmac(SECRET, `${TIME}.`, BODY).toString('hex')}`;
const WRONG_V1 = `v1=${'0'.repeat(64)}`;
const T = `t=${TIME}`;

test('stripe: four signatures are tried, five refused; exactly one time; unknown elements are ignored', async () => {
  await accepted(stripeHeader(T, WRONG_V1, WRONG_V1, WRONG_V1, V1), 'the fourth');
  await accepted(stripeHeader(V1, T, 'v0=legacy', 'x=y=z'), 'unknown elements');
  await refused(stripeHeader(T, V1, WRONG_V1, WRONG_V1, WRONG_V1, WRONG_V1), 'BAD_ORIGIN', 'five');
  await refused(stripeHeader(T, T, V1), 'BAD_ORIGIN', 'two times');
  await refused(stripeHeader(V1), 'BAD_ORIGIN', 'no time');
  await refused(stripeHeader(T), 'BAD_ORIGIN', 'no signature');
  await refused(stripeHeader(T, V1.replace('v1', 'v0')), 'BAD_ORIGIN', 'an old version only');
  await refused(stripeHeader(T, V1, 'v1=short'), 'BAD_ORIGIN', 'one malformed signature beside a right one');
  for (const bad of ['', '=', 'v1', '=v1', ' ']) await refused(stripeHeader(T, V1, bad), 'BAD_ORIGIN', `"${bad}"`);
});

const V1_STANDARD = `v1,${hmac(SECRET, `msg_1.${TIME}.`, BODY).toString('base64')}`;
const V1A = `v1a,${ed25519(`msg_1.${TIME}.`, BODY).toString('base64')}`;
const WRONG = `v1,${Buffer.alloc(32).toString('base64')}`;
const WRONG_A = `v1a,${Buffer.alloc(64).toString('base64')}`;

const standard = (signature: string, id = 'msg_1', secrets?: LiveSecret[]): Sent => ({
  scheme: 'standard',
  headers: [
    ['webhook-id', id],
    ['webhook-timestamp', TIME],
    ['webhook-signature', signature],
  ],
  body: BODY,
  ...(secrets !== undefined && { secrets }),
});

test('standard: four signatures are tried, five refused; other versions are ignored', async () => {
  await accepted(standard([WRONG, WRONG, WRONG, V1_STANDARD].join(' ')), 'the fourth');
  await accepted(standard(`v2,abc ${V1_STANDARD} v1z,def`), 'other versions');
  await accepted(standard([WRONG, WRONG, WRONG_A, V1A].join(' '), 'msg_1', [publicSecret()]), 'Ed25519');
  await refused(standard([V1_STANDARD, WRONG, WRONG, WRONG, WRONG].join(' ')), 'BAD_ORIGIN', 'five');
  await refused(standard([V1A, WRONG, WRONG, WRONG_A, WRONG_A].join(' ')), 'BAD_ORIGIN', 'five of both kinds');
  await refused(standard(`v2,abc`), 'BAD_ORIGIN', 'another version only');
  for (const bad of [`${V1_STANDARD}  ${WRONG}`, ` ${V1_STANDARD}`, `${V1_STANDARD} v1`, `${V1_STANDARD} ,x`])
    await refused(standard(bad), 'BAD_ORIGIN', bad);
  await refused(standard(`${V1_STANDARD} v1,short`), 'BAD_ORIGIN', 'one malformed signature beside a right one');
});

test('standard: a secret is tried on signatures of its own kind only', async () => {
  const both = [hmacSecret(SECRET, 1), publicSecret(2)];
  for (const [signature, version] of [
    [V1_STANDARD, 1],
    [V1A, 2],
  ] as const) {
    const verified = await verify(standard(signature, 'msg_1', both));
    assert.equal(verified.ok && verified.secret_version, version);
  }
  await refused(standard(V1A), 'BAD_ORIGIN', 'v1a without a public key');
  await refused(standard(V1_STANDARD, 'msg_1', [publicSecret()]), 'BAD_ORIGIN', 'v1 without an HMAC secret');
  const relabelled = `v1,${Buffer.from(V1A.slice(4), 'base64').subarray(0, 32).toString('base64')}`;
  await refused(standard(relabelled, 'msg_1', both), 'BAD_ORIGIN', 'half an Ed25519 signature');
});

test('standard: an id with a delimiter would allow two splits and is refused', async () => {
  const split = `v1,${hmac(SECRET, `msg_1.5.${TIME}.`, BODY).toString('base64')}`;
  await refused(standard(split, 'msg_1.5'), 'BAD_ORIGIN', 'a dot in the id');
  for (const id of ['', 'a b', 'ä', 'x'.repeat(257), 'a\u0000']) {
    const signature = `v1,${hmac(SECRET, `${id}.${TIME}.`, BODY).toString('base64')}`;
    await refused(standard(signature, id), 'BAD_ORIGIN', `id ${JSON.stringify(id)}`);
  }
});

test('generic: an id with the delimiter of the template is refused', async () => {
  const id = 'a:b';
  const value = `sha512=${hmac(SECRET, `v1:${TIME}:${id}:`, BODY, 'sha512').toString('hex')}`;
  const sent = VARIANTS[5]!.sign(BODY);
  const changed = withHeader(
    withHeader(sent, 'x-id', () => id),
    'x-sign',
    () => value,
  );
  await refused(changed, 'BAD_ORIGIN', 'a colon in the id');
});

test('standard: a third Ed25519 signature is refused before one is checked; the caller learns of each check', async () => {
  const secrets = [publicSecret(2), publicSecret(1)];
  const checksOf = async (...signatures: string[]): Promise<readonly [boolean, number]> => {
    let checks = 0;
    const { ok } = await verify({
      ...standard(signatures.join(' '), 'msg_1', secrets),
      onEd25519: () => void (checks += 1),
    });
    return [ok, checks];
  };
  assert.deepEqual(await checksOf(WRONG_A, WRONG_A, V1A), [false, 0]);
  assert.deepEqual(await checksOf(WRONG_A, WRONG_A, WRONG_A), [false, 0]);
  assert.deepEqual(await checksOf(WRONG_A, WRONG_A), [false, 4]);
  assert.deepEqual(await checksOf(WRONG_A, V1A), [true, 2]);
  assert.deepEqual(await checksOf(WRONG), [false, 0], 'a digest is not counted');
});
