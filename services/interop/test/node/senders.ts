/** Webhook providers of a test, which sign as their documentation says and not with the code under test. */
import { createHmac } from 'node:crypto';
import { leaks } from '@ron/auth/testing';
import type { InteropClient } from '@ron/client';
import type { SchemeName } from '@ron/proto';

const SECRET = 'a secret of enough bytes for all';
const SECRETS: Readonly<Record<SenderScheme, string>> = {
  github: SECRET,
  slack: SECRET,
  stripe: SECRET,
  standard: `whsec_${Buffer.from(SECRET).toString('base64')}`,
};

for (const secret of [SECRET, ...Object.values(SECRETS)]) leaks.secret('a webhook secret', secret);

export type SenderScheme = Exclude<SchemeName, 'generic'>;
/** Those whose accepted deliveries get 202 and a body. */
export type LoadScheme = Exclude<SenderScheme, 'slack'>;

/** A delivery as a provider sends it: each time with the same headers and body. */
export interface SignedDelivery {
  readonly provider: string;
  readonly body: Buffer;
  readonly headers: Readonly<Record<string, string>>;
}

const hmac = (prefix: string, body: Uint8Array): Buffer =>
  createHmac('sha256', SECRET).update(prefix).update(body).digest();

type Signer = (body: Uint8Array, id: string, time: string) => Readonly<Record<string, string>>;

const SIGNERS: Readonly<Record<SenderScheme, Signer>> = {
  github: (body) => ({ 'x-hub-signature-256': `sha256=${hmac('', body).toString('hex')}` }),
  slack: (body, _, time) => ({
    'x-slack-request-timestamp': time,
    'x-slack-signature': `v0=${hmac(`v0:${time}:`, body).toString('hex')}`,
  }),
  stripe: (body, _, time) => ({ 'stripe-signature': `t=${time},v1=${hmac(`${time}.`, body).toString('hex')}` }),
  standard: (body, id, time) => ({
    'webhook-id': id,
    'webhook-timestamp': time,
    'webhook-signature': `v1,${hmac(`${id}.${time}.`, body).toString('base64')}`,
  }),
};

export interface SignInit {
  readonly provider?: string;
  /** Fills the body up to this length. */
  readonly bytes?: number;
  /** The signed time. Default: now. */
  readonly wall_ms?: number;
}

/** `id`: unique for each delivery. */
export function signed(scheme: SenderScheme, id: string, init: SignInit = {}): SignedDelivery {
  const body = JSON.stringify({ id, type: 'load', filler: 'x'.repeat(init.bytes ?? 0) });
  return signedBody(scheme, id, Buffer.from(body), init);
}

export function signedBody(
  scheme: SenderScheme,
  id: string,
  body: Buffer,
  { provider = scheme, wall_ms = Date.now() }: Omit<SignInit, 'bytes'> = {},
): SignedDelivery {
  const time = String(Math.floor(wall_ms / 1000));
  return { provider, body, headers: { 'content-type': 'application/json', ...SIGNERS[scheme](body, id, time) } };
}

/** Creates a provider whose limits a load does not reach. */
export async function addProvider(admin: InteropClient, scheme: SenderScheme, name: string = scheme): Promise<void> {
  await admin.putProvider(name, { scheme, secret: SECRETS[scheme], limits: { rps: 10_000, inflight: 1024 } });
}

/** Flags without the limits of the listener, which a load from one address would reach. */
export const NO_RATES = ['--server.max_rps=100000', '--server.rps_burst=100000', '--webhooks.address_rps=100000'];

/** Flags for a machine that is slow: a mailbox that takes long is neither replaced by the spool nor shed. */
export const PATIENT = ['--spool.after=5s', '--brownout.p95=1m'];
