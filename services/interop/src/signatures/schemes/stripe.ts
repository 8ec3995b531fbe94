/**
 * Stripe: `Stripe-Signature: t=<time>,v1=<hex>[,v1=<hex>]` over `<time>.<body>`.
 *
 * Contract: several `v1` occur while the provider rotates its secret. Elements of other names, such as `v0`, are ignored; at
 * least one `v1` is required, and exactly one `t`.
 */
import type { SignedRequest } from '../verify.ts';
import { jsonMembers, type TakeTurn } from '../json-members.ts';
import { b3Of, idValue, textMember } from './body-fields.ts';
import {
  decodeHex,
  isTime,
  SHA256_BYTES,
  soleHeader,
  type ClaimedSignature,
  type Description,
  type Parsed,
} from './claim.ts';

export const STRIPE = { signature: 'stripe-signature' } as const;

export const stripePrefix = (time: string): string => `${time}.`;

export function parseStripe(request: SignedRequest): Parsed {
  const header = soleHeader(request, STRIPE.signature);
  if (header === undefined) return 'Stripe-Signature is missing or repeated';
  const times: string[] = [];
  const signatures: ClaimedSignature[] = [];
  for (const element of header.split(',')) {
    const equals = element.indexOf('=');
    if (equals < 1) return 'Stripe-Signature is malformed';
    const name = element.slice(0, equals);
    const value = element.slice(equals + 1);
    if (name === 't') times.push(value);
    if (name !== 'v1') continue;
    const bytes = decodeHex(value, SHA256_BYTES);
    if (bytes === undefined) return 'a signature in Stripe-Signature is not 64 digits of lower-case hex';
    signatures.push({ kind: 'hmac', bytes });
  }
  const [time, second] = times;
  if (!isTime(time) || second !== undefined) return 'Stripe-Signature does not have one decimal time';
  if (signatures.length === 0) return 'Stripe-Signature has no known version';
  return {
    prefix: stripePrefix(time),
    algorithm: 'sha256',
    signatures,
    signed_s: Number(time),
    describe: (takeTurn) => describe(request.body, takeTurn),
  };
}

async function describe(body: Uint8Array, takeTurn: TakeTurn): Promise<Description> {
  const members = await jsonMembers(body, { id: 'text', type: 'text' }, takeTurn);
  const id = textMember(members, 'id');
  const event = textMember(members, 'type');
  return {
    dedup: id === undefined ? b3Of(body) : idValue(id),
    answers_empty: false,
    ...(id !== undefined && { delivery_id: id }),
    ...(event !== undefined && { event }),
  };
}
