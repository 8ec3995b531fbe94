/**
 * An independent verifier for comparison: it writes down every signature that the provider could have sent and compares texts.
 * Slow, not in constant time, and without any code of interop.
 */
import { createHmac, verify } from 'node:crypto';
import type { LiveSecret } from '../../src/signatures/verify.ts';
import type { Sent } from './requests.ts';

export type Verdict = 'accepted' | 'BAD_ORIGIN' | 'EXPIRED_TOKEN';

const TIME = /^[0-9]{1,12}$/;
const VISIBLE = /^[\x21-\x7e]{1,256}$/;

export function reference(sent: Sent, secrets: readonly LiveSecret[], wall_s: number): Verdict {
  const signed = SCHEMES[sent.scheme](sent, secrets);
  if (signed === 'no') return 'BAD_ORIGIN';
  if (signed === 'yes') return 'accepted';
  return Math.abs(Number(signed) - wall_s) <= 300 ? 'accepted' : 'EXPIRED_TOKEN';
}

/** 'no', 'yes', or the signed time of a valid signature. */
type Signed = string;
type Reference = (sent: Sent, secrets: readonly LiveSecret[]) => Signed;

/** The only value of a header; undefined if it is missing or repeated. */
function sole({ headers }: Sent, name: string): string | undefined {
  const values = headers.filter((line) => line[0].toLowerCase() === name);
  return values.length === 1 ? values[0]![1] : undefined;
}

const count = ({ headers }: Sent, name: string): number =>
  headers.filter((line) => line[0].toLowerCase() === name).length;

/** The digests of all HMAC secrets. */
const digests = (text: string, body: Uint8Array, secrets: readonly LiveSecret[], algorithm = 'sha256'): Buffer[] =>
  secrets
    .filter(({ kind }) => kind === 'hmac')
    .map(({ key }) =>
      createHmac(algorithm, key)
        .update(Buffer.concat([Buffer.from(text), body]))
        .digest(),
    );

const SCHEMES: Readonly<Record<Sent['scheme'], Reference>> = {
  github(sent, secrets) {
    if (count(sent, 'x-github-event') > 1 || count(sent, 'x-github-delivery') > 1) return 'no';
    const expected = digests('', sent.body, secrets).map((digest) => `sha256=${digest.toString('hex')}`);
    return expected.includes(sole(sent, 'x-hub-signature-256') ?? '') ? 'yes' : 'no';
  },
  slack(sent, secrets) {
    const time = sole(sent, 'x-slack-request-timestamp') ?? '';
    if (!TIME.test(time)) return 'no';
    const expected = digests(`v0:${time}:`, sent.body, secrets).map((digest) => `v0=${digest.toString('hex')}`);
    return expected.includes(sole(sent, 'x-slack-signature') ?? '') ? time : 'no';
  },
  stripe(sent, secrets) {
    const elements = (sole(sent, 'stripe-signature') ?? '').split(',');
    if (!elements.every((element) => /^[^=]+=/.test(element))) return 'no';
    const named = (name: string): string[] =>
      elements.filter((element) => element.startsWith(`${name}=`)).map((element) => element.slice(name.length + 1));
    const [time = '', second] = named('t');
    const given = named('v1');
    if (!TIME.test(time) || second !== undefined || given.length > 4) return 'no';
    if (!given.every((text) => /^[0-9a-f]{64}$/.test(text))) return 'no';
    return digests(`${time}.`, sent.body, secrets).some((digest) => given.includes(digest.toString('hex')))
      ? time
      : 'no';
  },
  standard(sent, secrets) {
    const id = sole(sent, 'webhook-id') ?? '';
    const time = sole(sent, 'webhook-timestamp') ?? '';
    const elements = (sole(sent, 'webhook-signature') ?? '').split(' ');
    if (!VISIBLE.test(id) || id.includes('.') || !TIME.test(time)) return 'no';
    if (!elements.every((element) => /^[^,]+,/.test(element))) return 'no';
    const known = elements.filter((element) => /^v1a?,/.test(element));
    if (known.length > 4 || !known.every(isWellFormed)) return 'no';
    if (known.filter((element) => element.startsWith('v1a,')).length > 2) return 'no';
    const prefix = `${id}.${time}.`;
    const hmacs = digests(prefix, sent.body, secrets).map((digest) => `v1,${digest.toString('base64')}`);
    const isKnown = known.some((element) => hmacs.includes(element) || madeByKey(element, prefix, sent.body, secrets));
    return isKnown ? time : 'no';
  },
  generic(sent, secrets) {
    const { template, prefix = '', encoding, algorithm } = sent.generic!;
    const time = sole(sent, 'x-time') ?? '';
    const id = sole(sent, 'x-id') ?? '';
    if (!TIME.test(time) || !VISIBLE.test(id) || id.includes(':')) return 'no';
    const text = template
      .replace('{body}', '')
      .replace('{timestamp}', () => time)
      .replace('{id}', () => id);
    const expected = digests(text, sent.body, secrets, algorithm).map((digest) => prefix + digest.toString(encoding));
    return expected.includes(sole(sent, 'x-sign') ?? '') ? time : 'no';
  },
};

/** 32 bytes for `v1` and 64 for `v1a`, in the one base64 spelling of them. */
function isWellFormed(element: string): boolean {
  const comma = element.indexOf(',');
  const text = element.slice(comma + 1);
  const bytes = Buffer.from(text, 'base64');
  return bytes.length === (element.startsWith('v1a') ? 64 : 32) && bytes.toString('base64') === text;
}

function madeByKey(element: string, prefix: string, body: Uint8Array, secrets: readonly LiveSecret[]): boolean {
  if (!element.startsWith('v1a,')) return false;
  const signature = Buffer.from(element.slice('v1a,'.length), 'base64');
  const signed = Buffer.concat([Buffer.from(prefix), body]);
  return secrets.some(({ kind, key }) => kind === 'ed25519' && verify(null, signed, key, signature));
}
