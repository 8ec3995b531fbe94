/** The verdicts of `verifySlackRequest` of `@slack/bolt` and of interop on the same requests. */
import assert from 'node:assert/strict';
import { createSecretKey } from 'node:crypto';
import { test } from 'node:test';
import { verifySlackRequest } from '@slack/bolt';
import fc from 'fast-check';
import { signSample } from '../../src/signatures/sign-sample.ts';
import { fuzzRuns } from '@ron/testkit';
import { hmac, OTHER_SECRET, SECRET, TIME, TIME_S, verify, WALL_MS } from './requests.ts';

const BODY = 'token=x&command=%2Fweather&text=94070';

interface SlackRequest {
  readonly time: string;
  readonly signature: string;
  readonly body: string;
}

const signatureOf = (time: string, body: string, secret = SECRET): string =>
  `v0=${hmac(secret, `v0:${time}:`, Buffer.from(body)).toString('hex')}`;

function libraryAccepts({ time, signature, body }: SlackRequest): boolean {
  const headers = {
    'x-slack-signature': signature,
    // The type says number, and the documented use passes the text of the header.
    'x-slack-request-timestamp': time as unknown as number,
  };
  try {
    verifySlackRequest({ signingSecret: SECRET.toString(), body, headers, nowMilliseconds: WALL_MS });
    return true;
  } catch {
    return false;
  }
}

async function interopAccepts({ time, signature, body }: SlackRequest): Promise<boolean> {
  const verified = await verify({
    scheme: 'slack',
    headers: [
      ['X-Slack-Signature', signature],
      ['X-Slack-Request-Timestamp', time],
    ],
    body: Buffer.from(body),
  });
  return verified.ok;
}

const good: SlackRequest = { time: TIME, signature: signatureOf(TIME, BODY), body: BODY };
const at = (time_s: number): SlackRequest => {
  const time = String(time_s);
  return { time, signature: signatureOf(time, BODY), body: BODY };
};
const hex = good.signature.slice('v0='.length);

const SAME: readonly (readonly [name: string, request: SlackRequest, accepted: boolean])[] = [
  ['a good request', good, true],
  ['an empty body', { ...good, body: '', signature: signatureOf(TIME, '') }, true],
  ['text beyond ASCII', { ...good, body: 'text=é世', signature: signatureOf(TIME, 'text=é世') }, true],
  ['exactly five minutes old', at(TIME_S - 300), true],
  ['five minutes and a second old', at(TIME_S - 301), false],
  ['six minutes old', at(TIME_S - 360), false],
  ['another body', { ...good, body: `${BODY}&x=1` }, false],
  ['another time', { ...good, time: String(TIME_S - 1) }, false],
  ['another secret', { ...good, signature: signatureOf(TIME, BODY, OTHER_SECRET) }, false],
  ['upper-case hex', { ...good, signature: `v0=${hex.toUpperCase()}` }, false],
  ['a cut signature', { ...good, signature: good.signature.slice(0, -1) }, false],
  ['a longer signature', { ...good, signature: `${good.signature}0` }, false],
  ['another version', { ...good, signature: `v1=${hex}` }, false],
  ['a version in upper case', { ...good, signature: `V0=${hex}` }, false],
  ['no version', { ...good, signature: hex }, false],
  ['no digits', { ...good, signature: 'v0=' }, false],
  ['an empty signature', { ...good, signature: '' }, false],
  ['a space before the digits', { ...good, signature: `v0= ${hex}` }, false],
];

/** Interop refuses more: a signed value has one spelling, and a time may not be ahead of the clock either. */
const STRICTER: readonly (readonly [name: string, request: SlackRequest])[] = [
  ['a time six minutes ahead', at(TIME_S + 360)],
  ['a time that is not digits', { time: 'soon', signature: signatureOf('soon', BODY), body: BODY }],
  ['a time with a fraction', { time: `${TIME}.5`, signature: signatureOf(`${TIME}.5`, BODY), body: BODY }],
  ['text after a second equals sign', { ...good, signature: `${good.signature}=x` }],
];

test('verifySlackRequest and interop agree on good and bad requests', async () => {
  for (const [name, request, accepted] of SAME) {
    assert.equal(libraryAccepts(request), accepted, `@slack/bolt: ${name}`);
    assert.equal(await interopAccepts(request), accepted, `interop: ${name}`);
  }
});

test('interop refuses requests that verifySlackRequest accepts by accident', async () => {
  for (const [name, request] of STRICTER) {
    assert.equal(libraryAccepts(request), true, `@slack/bolt: ${name}`);
    assert.equal(await interopAccepts(request), false, `interop: ${name}`);
  }
});

test('interop never accepts a request that verifySlackRequest refuses', async () => {
  const time = fc.oneof(
    fc.integer({ min: TIME_S - 400, max: TIME_S + 400 }).map(String),
    fc.string({ unit: fc.constantFrom('0', '9', ' ', '.', '-', 'e'), maxLength: 13 }),
  );
  const change = fc.oneof(fc.constant(''), fc.constantFrom('=', ' ', '0', 'A'));
  await fc.assert(
    fc.asyncProperty(time, fc.string(), change, async (when, body, tail) => {
      const request = { time: when, signature: signatureOf(when, body) + tail, body };
      if (await interopAccepts(request)) assert.equal(libraryAccepts(request), true);
    }),
    fuzzRuns(300),
  );
});

test('verifySlackRequest accepts the samples that interop signs', () => {
  const init = { scheme: 'slack', key: createSecretKey(SECRET), wall_ms: WALL_MS, id: 'msg_1' } as const;
  const headers = signSample({ ...init, body: Buffer.from(BODY) });
  const request = { time: headers['x-slack-request-timestamp']!, signature: headers['x-slack-signature']! };
  assert.equal(libraryAccepts({ ...request, body: BODY }), true);
  assert.equal(libraryAccepts({ ...request, body: `${BODY} ` }), false);
});
