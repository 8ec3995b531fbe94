/**
 * Signed requests of all schemes for tests. They are signed here, straight from the documentation of each scheme, and not with
 * the code under test.
 */
import assert from 'node:assert/strict';
import { createHmac, createPublicKey, createSecretKey, generateKeyPairSync, sign, type KeyObject } from 'node:crypto';
import type { GenericScheme, RejectReason, SchemeName } from '@ron/proto';
import { verifyWebhook, type LiveSecret, type Verification } from '../../src/signatures/verify.ts';

/** The time of all requests: in seconds, as text, and as the clock of the verifier. */
export const TIME_S = 1_700_000_000;
export const TIME = String(TIME_S);
export const WALL_MS = TIME_S * 1000;
export const TOLERANCE_MS = 300_000;

export const SECRET = Buffer.from('a secret of at least sixteen bytes');
export const OTHER_SECRET = Buffer.from('another secret of sixteen bytes or more');
const pair = generateKeyPairSync('ed25519');
export const PUBLIC_KEY: KeyObject = createPublicKey(pair.privateKey);

export const hmacSecret = (bytes: Uint8Array, version = 1): LiveSecret => ({
  version,
  kind: 'hmac',
  key: createSecretKey(bytes),
});
export const publicSecret = (version = 1): LiveSecret => ({ version, kind: 'ed25519', key: PUBLIC_KEY });

export type HeaderLines = readonly (readonly [name: string, value: string])[];

/** A request and the provider that it is sent to. */
export interface Sent {
  readonly scheme: SchemeName;
  readonly generic?: GenericScheme;
  readonly headers: HeaderLines;
  readonly body: Uint8Array;
  readonly secrets?: readonly LiveSecret[];
  readonly wall_ms?: number;
  readonly tolerance_ms?: number;
  readonly onEd25519?: () => void;
  readonly takeTurn?: (bytes: number) => Promise<void>;
}

export function verify(sent: Sent): Promise<Verification> {
  const { scheme, generic, headers, body, wall_ms = WALL_MS, tolerance_ms = TOLERANCE_MS } = sent;
  const secrets = sent.secrets ?? [hmacSecret(SECRET)];
  const headerValues = (wanted: string): readonly string[] =>
    headers.filter(([name]) => name.toLowerCase() === wanted).map(([, value]) => value);
  const { onEd25519 = () => undefined, takeTurn = () => Promise.resolve() } = sent;
  const init = { scheme, secrets, wall_ms, tolerance_ms, takeTurn, onEd25519 };
  return verifyWebhook({ headerValues, body }, generic === undefined ? init : { ...init, generic });
}

export const hmac = (secret: Uint8Array, prefix: string, body: Uint8Array, algorithm = 'sha256'): Buffer =>
  createHmac(algorithm, secret).update(prefix).update(body).digest();

export const ed25519 = (prefix: string, body: Uint8Array): Buffer =>
  sign(null, Buffer.concat([Buffer.from(prefix), body]), pair.privateKey);

export const GENERIC: GenericScheme = {
  template: 'v1:{timestamp}:{id}:{body}',
  signature_header: 'X-Sign',
  prefix: 'sha512=',
  encoding: 'hex',
  algorithm: 'sha512',
  timestamp_header: 'X-Time',
  id_header: 'X-Id',
};

/** A provider's way to sign: its name in test names, and a valid request with this body. */
export interface Variant {
  readonly name: string;
  readonly sign: (body: Uint8Array, secret?: Uint8Array, time?: string) => Sent;
  readonly signature_header: string;
  readonly time_header?: string;
}

const github: Variant = {
  name: 'github',
  signature_header: 'x-hub-signature-256',
  sign: (body, secret = SECRET) => ({
    scheme: 'github',
    headers: [['X-Hub-Signature-256', `sha256=${hmac(secret, '', body).toString('hex')}`]],
    body,
  }),
};

const slack: Variant = {
  name: 'slack',
  signature_header: 'x-slack-signature',
  time_header: 'x-slack-request-timestamp',
  sign: (body, secret = SECRET, time = TIME) => ({
    scheme: 'slack',
    headers: [
      ['X-Slack-Request-Timestamp', time],
      ['X-Slack-Signature', `v0=${hmac(secret, `v0:${time}:`, body).toString('hex')}`],
    ],
    body,
  }),
};

const stripe: Variant = {
  name: 'stripe',
  signature_header: 'stripe-signature',
  sign: (body, secret = SECRET, time = TIME) => ({
    scheme: 'stripe',
    headers: [['Stripe-Signature', `t=${time},v1=${hmac(secret, `${time}.`, body).toString('hex')}`]],
    body,
  }),
};

const standardHeaders = (time: string, signature: string): HeaderLines => [
  ['webhook-id', 'msg_1'],
  ['webhook-timestamp', time],
  ['webhook-signature', signature],
];

const standard: Variant = {
  name: 'standard v1',
  signature_header: 'webhook-signature',
  time_header: 'webhook-timestamp',
  sign: (body, secret = SECRET, time = TIME) => ({
    scheme: 'standard',
    headers: standardHeaders(time, `v1,${hmac(secret, `msg_1.${time}.`, body).toString('base64')}`),
    body,
  }),
};

const standardPublic: Variant = {
  ...standard,
  name: 'standard v1a',
  sign: (body, _secret, time = TIME) => ({
    scheme: 'standard',
    headers: standardHeaders(time, `v1a,${ed25519(`msg_1.${time}.`, body).toString('base64')}`),
    body,
    secrets: [publicSecret()],
  }),
};

const generic: Variant = {
  name: 'generic',
  signature_header: 'x-sign',
  time_header: 'x-time',
  sign: (body, secret = SECRET, time = TIME) => ({
    scheme: 'generic',
    generic: GENERIC,
    headers: [
      ['X-Time', time],
      ['X-Id', 'msg_1'],
      ['X-Sign', `sha512=${hmac(secret, `v1:${time}:msg_1:`, body, 'sha512').toString('hex')}`],
    ],
    body,
  }),
};

export const VARIANTS: readonly Variant[] = [github, slack, stripe, standard, standardPublic, generic];
export const TIMED: readonly Variant[] = VARIANTS.filter((variant) => variant !== github);

/** The request with a changed header. */
export const withHeader = (sent: Sent, wanted: string, change: (value: string) => string): Sent => ({
  ...sent,
  headers: sent.headers.map(([name, value]) => [name, name.toLowerCase() === wanted ? change(value) : value]),
});

export const withoutHeader = (sent: Sent, wanted: string): Sent => ({
  ...sent,
  headers: sent.headers.filter(([name]) => name.toLowerCase() !== wanted),
});

/** The refusal has this reason and repeats no secret. */
export async function refused(sent: Sent, reason: RejectReason, message: string): Promise<void> {
  const verified = await verify(sent);
  assert.equal(verified.ok, false, `${message} is accepted`);
  if (verified.ok) return;
  assert.equal(verified.reason, reason, message);
  for (const secret of [SECRET.toString(), OTHER_SECRET.toString()]) assert.ok(!verified.detail.includes(secret));
}

export const accepted = async (sent: Sent, message: string): Promise<void> => {
  const verified = await verify(sent);
  assert.equal(verified.ok, true, `${message}: ${JSON.stringify(verified)}`);
};
