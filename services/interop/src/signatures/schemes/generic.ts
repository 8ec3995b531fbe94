/**
 * A scheme that the operator describes: an HMAC over a template of time, id and body.
 *
 * Contract: the descriptor passed `requireGeneric`. An id holds no character that begins the literal after it, and a time is
 * digits, so the signed bytes have one split.
 */
import type { GenericScheme } from '@ron/proto';
import { compileTemplate, fillTemplate, type Template } from '../generic-template.ts';
import type { SignedRequest } from '../verify.ts';
import { b3Of, idValue } from './body-fields.ts';
import {
  decodeBase64,
  decodeHex,
  isPlainText,
  isRepeated,
  isTime,
  soleHeader,
  unsignedText,
  type Description,
  type Parsed,
} from './claim.ts';

export const DIGEST_BYTES: Readonly<Record<GenericScheme['algorithm'], number>> = { sha256: 32, sha512: 64 };

interface SignedFields {
  readonly time?: string;
  readonly id?: string;
}

export function parseGeneric(request: SignedRequest, generic: GenericScheme): Parsed {
  const template = compileTemplate(generic);
  const header = soleHeader(request, template.signature_header);
  if (header === undefined) return 'the signature header is missing or repeated';
  const fields = parseFields(request, template);
  if (typeof fields === 'string') return fields;
  const bytes = parseSignature(header, generic);
  if (typeof bytes === 'string') return bytes;
  const { time } = fields;
  return {
    prefix: fillTemplate(template, { timestamp: time, id: fields.id }),
    algorithm: generic.algorithm,
    signatures: [{ kind: 'hmac', bytes }],
    ...(time !== undefined && { signed_s: Number(time) }),
    describe: () => describe(request, template, fields.id),
  };
}

/** The signed time and id; absent if the template has none. */
function parseFields(request: SignedRequest, template: Template): SignedFields | string {
  const { timestamp_header, id_header, id_end } = template;
  const time = timestamp_header === undefined ? undefined : soleHeader(request, timestamp_header);
  if (timestamp_header !== undefined && !isTime(time))
    return 'the time header is missing, repeated or not a decimal time';
  if (id_header !== undefined && isRepeated(request, id_header)) return 'the id header is repeated';
  if (id_end === undefined) return time === undefined ? {} : { time };
  const id = id_header === undefined ? undefined : soleHeader(request, id_header);
  if (!isPlainText(id)) return 'the id header is missing or not a short printable text';
  if (id.includes(id_end)) return 'the id holds the delimiter of the template';
  return time === undefined ? { id } : { time, id };
}

function parseSignature(header: string, { prefix = '', encoding, algorithm }: GenericScheme): Uint8Array | string {
  if (!header.startsWith(prefix)) return 'the signature header does not have its prefix';
  const text = header.slice(prefix.length);
  const length = DIGEST_BYTES[algorithm];
  const bytes = encoding === 'hex' ? decodeHex(text, length) : decodeBase64(text, length);
  return bytes ?? 'the signature has a wrong encoding or length';
}

function describe(request: SignedRequest, { id_header }: Template, id: string | undefined): Description {
  if (id !== undefined) return { dedup: idValue(id), answers_empty: false, delivery_id: id };
  const delivery_id = id_header === undefined ? undefined : unsignedText(request, id_header);
  return { dedup: b3Of(request.body), answers_empty: false, ...(delivery_id !== undefined && { delivery_id }) };
}
