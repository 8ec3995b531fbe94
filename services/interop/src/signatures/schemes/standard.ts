/**
 * Standard Webhooks: `webhook-signature` over `<id>.<time>.<body>`; `v1` is an HMAC, `v1a` an Ed25519 signature.
 *
 * Contract: signatures are separated by one space. Those of other versions are ignored; at least one known one is required.
 * The id holds no `.`, so the signed bytes have one split.
 * Bound: `ED25519_MAX` signatures of `v1a`. Overflow: the request is refused before any of them is checked.
 */
import type { SignedRequest } from '../verify.ts';
import { jsonMembers, type TakeTurn } from '../json-members.ts';
import { idValue, textMember } from './body-fields.ts';
import {
  decodeBase64,
  ED25519_BYTES,
  isPlainText,
  isTime,
  SHA256_BYTES,
  soleHeader,
  type ClaimedSignature,
  type Description,
  type Parsed,
} from './claim.ts';

export const STANDARD = {
  id: 'webhook-id',
  timestamp: 'webhook-timestamp',
  signature: 'webhook-signature',
} as const;
/** A sender that rotates its key signs with two. More would only let a forger cause checks of 126 us each. */
const ED25519_MAX = 2;

export const standardPrefix = (id: string, time: string): string => `${id}.${time}.`;

const isStandardId = (id: string): boolean => isPlainText(id) && !id.includes('.');

export function parseStandard(request: SignedRequest): Parsed {
  const id = soleHeader(request, STANDARD.id);
  if (id === undefined) return 'webhook-id is missing or repeated';
  const time = soleHeader(request, STANDARD.timestamp);
  if (time === undefined) return 'webhook-timestamp is missing or repeated';
  const header = soleHeader(request, STANDARD.signature);
  if (header === undefined) return 'webhook-signature is missing or repeated';
  if (!isStandardId(id)) return 'webhook-id is not a short printable text without a dot';
  if (!isTime(time)) return 'webhook-timestamp is not a decimal time';
  const signatures = parseSignatures(header);
  if (typeof signatures === 'string') return signatures;
  return {
    prefix: standardPrefix(id, time),
    algorithm: 'sha256',
    signatures,
    signed_s: Number(time),
    describe: (takeTurn) => describe(request.body, id, takeTurn),
  };
}

function parseSignatures(header: string): readonly ClaimedSignature[] | string {
  const signatures: ClaimedSignature[] = [];
  for (const element of header.split(' ')) {
    const comma = element.indexOf(',');
    if (comma < 1) return 'webhook-signature is malformed';
    const version = element.slice(0, comma);
    const kind = version === 'v1' ? 'hmac' : version === 'v1a' ? 'ed25519' : undefined;
    if (kind === undefined) continue;
    const bytes = decodeBase64(element.slice(comma + 1), kind === 'hmac' ? SHA256_BYTES : ED25519_BYTES);
    if (bytes === undefined) return 'a signature in webhook-signature has a wrong encoding or length';
    signatures.push({ kind, bytes });
  }
  if (signatures.length === 0) return 'webhook-signature has no known version';
  const ed25519 = signatures.filter(({ kind }) => kind === 'ed25519').length;
  return ed25519 > ED25519_MAX ? 'webhook-signature has more than two Ed25519 signatures' : signatures;
}

async function describe(body: Uint8Array, id: string, takeTurn: TakeTurn): Promise<Description> {
  const event = textMember(await jsonMembers(body, { type: 'text' }, takeTurn), 'type');
  return {
    dedup: idValue(id),
    answers_empty: false,
    delivery_id: id,
    ...(event !== undefined && { event }),
  };
}
