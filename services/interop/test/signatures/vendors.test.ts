/** The libraries of the vendors sign requests that interop accepts, and accept requests that interop signs. */
import assert from 'node:assert/strict';
import { createSecretKey } from 'node:crypto';
import { test } from 'node:test';
import { sign as signGithub, verify as verifyGithub } from '@octokit/webhooks-methods';
import fc from 'fast-check';
import { Webhook } from 'standardwebhooks';
import { Stripe } from 'stripe';
import { keyOfSecret, parseSecret } from '../../src/signatures/secret-text.ts';
import { signSample } from '../../src/signatures/sign-sample.ts';
import type { LiveSecret } from '../../src/signatures/verify.ts';
import type { SchemeName } from '@ron/proto';
import { fuzzRuns } from '@ron/testkit';
import { GENERIC, hmacSecret, SECRET, TIME_S, verify, WALL_MS, type HeaderLines } from './requests.ts';

const BODY = '{"id":"evt_1","type":"invoice.paid","text":"Grüße, 世界 \\u0000"}';
/** Text that UTF-8 keeps; the libraries take text only. `@octokit/webhooks-methods` refuses an empty one. */
const bodies = fc.oneof(fc.json(), fc.string({ unit: 'binary', minLength: 1 }));

function liveSecret(scheme: SchemeName, text: string): LiveSecret {
  const secret = parseSecret(scheme, text);
  return { version: 1, kind: secret.kind, key: keyOfSecret(secret) };
}

const lines = (headers: Readonly<Record<string, string>>): HeaderLines => Object.entries(headers);

test('requests signed by @octokit/webhooks-methods are accepted', async () => {
  const text = 'a github secret';
  const secrets = [liveSecret('github', `${text} of some length`)];
  await fc.assert(
    fc.asyncProperty(bodies, async (body) => {
      const signature = await signGithub(`${text} of some length`, body);
      const headers: HeaderLines = [['X-Hub-Signature-256', signature]];
      assert.equal((await verify({ scheme: 'github', headers, body: Buffer.from(body), secrets })).ok, true);
    }),
    fuzzRuns(100),
  );
});

test('requests signed by stripe are accepted, also with a text secret that starts with whsec_', async () => {
  const secret = 'whsec_test_secret_0123456789';
  const secrets = [liveSecret('stripe', secret)];
  await fc.assert(
    fc.asyncProperty(bodies, async (payload) => {
      const header = Stripe.webhooks.generateTestHeaderString({ payload, secret, timestamp: TIME_S });
      const headers: HeaderLines = [['Stripe-Signature', header]];
      const verified = await verify({ scheme: 'stripe', headers, body: Buffer.from(payload), secrets });
      assert.equal(verified.ok, true, JSON.stringify(verified));
    }),
    fuzzRuns(100),
  );
});

test('requests signed by standardwebhooks are accepted', async () => {
  const text = `whsec_${SECRET.toString('base64')}`;
  const secrets = [liveSecret('standard', text)];
  await fc.assert(
    fc.asyncProperty(bodies, async (body) => {
      const signature = new Webhook(text).sign('msg_2', new Date(WALL_MS), body);
      const headers: HeaderLines = [
        ['webhook-id', 'msg_2'],
        ['webhook-timestamp', String(TIME_S)],
        ['webhook-signature', signature],
      ];
      const verified = await verify({ scheme: 'standard', headers, body: Buffer.from(body), secrets });
      assert.equal(verified.ok, true, JSON.stringify(verified));
    }),
    fuzzRuns(100),
  );
});

/** The libraries read the clock themselves. */
const sample = (scheme: SchemeName, key: Uint8Array): Record<string, string> =>
  signSample({
    scheme,
    generic: GENERIC,
    key: createSecretKey(key),
    body: Buffer.from(BODY),
    wall_ms: Date.now(),
    id: 'msg_sample',
  });

test('the libraries of the vendors accept the samples that interop signs', async () => {
  const text = SECRET.toString();
  const github = sample('github', SECRET);
  assert.equal(await verifyGithub(text, BODY, github['x-hub-signature-256']!), true);
  assert.equal(await verifyGithub(text, `${BODY} `, github['x-hub-signature-256']!), false);

  const stripe = sample('stripe', SECRET)['stripe-signature']!;
  assert.equal(Stripe.webhooks.constructEvent(BODY, stripe, text).id, 'evt_1');
  assert.throws(() => Stripe.webhooks.constructEvent(`${BODY} `, stripe, text));

  const standard = new Webhook(`whsec_${SECRET.toString('base64')}`);
  assert.deepEqual(standard.verify(BODY, sample('standard', SECRET)), JSON.parse(BODY));
  assert.throws(() => standard.verify(`${BODY} `, sample('standard', SECRET)));
});

test('interop accepts the samples that it signs, in every scheme', async () => {
  for (const scheme of ['github', 'slack', 'stripe', 'standard', 'generic'] as const) {
    const sent = { scheme, generic: GENERIC, headers: lines(sample(scheme, SECRET)), body: Buffer.from(BODY) };
    const verified = await verify({ ...sent, wall_ms: Date.now() });
    assert.equal(verified.ok, true, `${scheme} ${JSON.stringify(verified)}`);
    const other = await verify({ ...sent, secrets: [hmacSecret(Buffer.from(BODY))], wall_ms: Date.now() });
    assert.equal(!other.ok && other.reason, 'BAD_ORIGIN', scheme);
  }
});
