/**
 * Which answers of an origin are accepted (RFC 9110, 9111), from status and headers alone.
 *
 * Contract: accepted are 200 with a type in `fill.types` and a strong ETag, 304 that confirms the stored asset, 404 and 410. Redirects,
 * cookies, `Vary` by anything but `Accept-Encoding` and every other status are `bad_gateway`: the answer may be for one
 * client only, or another resource. An ETag that is missing, weak or malformed has the reason `etag_invalid`.
 * Bound: the kept headers have `VALUE_CHARS_MAX` characters each; an answer whose `Cache-Control` has more than 4096 is not stored.
 */
import { RonError } from '@ron/kernel';
import type { FreshnessFields } from '../../cache/cached-asset.ts';
import { DELTA_S_MAX } from '../freshness/cache-control.ts';
import { isStorable } from '../freshness/freshness.ts';

/** As `Answer` of the HTTP client: lower-case names, repeated headers one by one. */
export type AnswerHeaders = Readonly<Record<string, readonly string[] | undefined>>;

/** The keys of the configuration that count. */
export interface AnswerRules {
  readonly types: readonly string[];
  readonly etag: 'strong' | 'any';
}

/** When the answer arrived, and when its request began. */
export interface AnswerTimes {
  readonly request_ms: number;
  readonly response_ms: number;
}

export type JudgedAnswer =
  | { readonly kind: 'absent'; readonly isStorable: boolean }
  /** 304 that does not confirm the stored asset: it is to be fetched without conditions. */
  | { readonly kind: 'unconfirmed' }
  | {
      readonly kind: 'unchanged';
      readonly etag: string | undefined;
      readonly freshness: FreshnessFields;
      readonly isStorable: boolean;
    }
  | {
      readonly kind: 'asset';
      readonly media_type: string;
      readonly etag: string | undefined;
      readonly freshness: FreshnessFields;
      /** False: for the client that led the fill only. */
      readonly isStorable: boolean;
    };

export type UsableAnswer = Exclude<JudgedAnswer, { kind: 'unconfirmed' }>;

/** The stored asset that a request revalidates. */
export interface Validated {
  readonly etag: string | undefined;
  readonly freshness: FreshnessFields | undefined;
}

const VALUE_CHARS_MAX = 256;
const ETAG = /^(W\/)?"[\x21\x23-\x7e\x80-\xff]*"$/;
const TOKEN = "[!#$%&'*+.^_`|~0-9A-Za-z-]+";
const MEDIA_TYPE = new RegExp(`^(${TOKEN}/${TOKEN})(?:[ \\t]*;[ \\t]*${TOKEN}=(?:${TOKEN}|"[ !#-\\[\\]-~]*"))*$`);

export function judgeAnswer(
  status: number,
  headers: AnswerHeaders,
  times: AnswerTimes,
  rules: AnswerRules,
  stale?: Validated,
): JudgedAnswer {
  if (status === 404 || status === 410)
    return { kind: 'absent', isStorable: isStorable(joined(headers, 'cache-control')) };
  if (status === 304 && stale !== undefined) return unchanged(headers, times, stale);
  if (status !== 200) throw badAnswer(`the origin answered with ${status}`);
  if (headers['set-cookie'] !== undefined) throw badAnswer('the origin set a cookie');
  if (!variesByEncodingOnly(headers)) throw badAnswer('the answer of the origin varies by headers of the client');
  return {
    kind: 'asset',
    media_type: mediaTypeOf(headers, rules.types),
    etag: etagOf(headers, rules.etag),
    freshness: freshnessFields(headers, times),
    isStorable: isStorable(joined(headers, 'cache-control')),
  };
}

/** RFC 9111, 4.3.4: the headers of a 304 replace the stored ones. */
function unchanged(headers: AnswerHeaders, times: AnswerTimes, stale: Validated): JudgedAnswer {
  const etag = joined(headers, 'etag');
  const isOther = etag !== undefined && opaque(etag) !== opaque(stale.etag ?? '');
  if (isOther || headers['set-cookie'] !== undefined || !variesByEncodingOnly(headers)) return { kind: 'unconfirmed' };
  const given = freshnessFields(headers, times);
  const { freshness: known } = stale;
  const freshness = {
    ...given,
    cache_control: given.cache_control ?? known?.cache_control,
    expires: given.expires ?? known?.expires,
    last_modified: given.last_modified ?? known?.last_modified,
  };
  return { kind: 'unchanged', etag: etag ?? stale.etag, freshness, isStorable: isStorable(freshness.cache_control) };
}

const opaque = (etag: string): string => etag.replace(/^W\//, '');

function freshnessFields(headers: AnswerHeaders, times: AnswerTimes): FreshnessFields {
  return {
    cache_control: joined(headers, 'cache-control'),
    expires: short(headers, 'expires'),
    date: short(headers, 'date'),
    last_modified: short(headers, 'last-modified'),
    age_s: ageIn(headers),
    ...times,
  };
}

/** The first value, if there are several (RFC 9111, 5.1); a malformed one counts as absent. */
function ageIn(headers: AnswerHeaders): number {
  const [first = ''] = (headers['age']?.[0] ?? '').split(',', 1);
  const age = first.trim();
  return /^\d+$/.test(age) ? Math.min(Number(age), DELTA_S_MAX) : 0;
}

function joined(headers: AnswerHeaders, name: string): string | undefined {
  return headers[name]?.join(', ');
}

/** Cut, not dropped: a long `Expires` is not a date, which means that it has passed. */
function short(headers: AnswerHeaders, name: string): string | undefined {
  return joined(headers, name)?.slice(0, VALUE_CHARS_MAX);
}

function variesByEncodingOnly(headers: AnswerHeaders): boolean {
  const fields = (joined(headers, 'vary') ?? '').split(',').map((field) => field.trim().toLowerCase());
  return fields.every((field) => field === '' || field === 'accept-encoding');
}

function etagOf(headers: AnswerHeaders, wanted: AnswerRules['etag']): string | undefined {
  const etag = joined(headers, 'etag');
  if (etag === undefined && wanted === 'any') return undefined;
  const form = etag === undefined || etag.length > VALUE_CHARS_MAX ? null : ETAG.exec(etag);
  if (form === null || (form[1] !== undefined && wanted === 'strong'))
    throw badAnswer('the ETag of the origin is missing, weak or malformed', 'etag_invalid');
  return etag;
}

function mediaTypeOf(headers: AnswerHeaders, types: readonly string[]): string {
  const given = headers['content-type'] ?? [];
  const [text = ''] = given;
  const type = text.length > VALUE_CHARS_MAX ? undefined : MEDIA_TYPE.exec(text)?.[1]?.toLowerCase();
  // A range such as image/* is for requests.
  if (type === undefined || type.includes('*') || given.length !== 1)
    throw badAnswer('the origin stated no valid media type');
  const isAllowed = types.some(
    (allowed) => allowed === type || (allowed.endsWith('/*') && type.startsWith(allowed.slice(0, -1))),
  );
  if (!isAllowed) throw badAnswer(`the media type ${type} is not in fill.types`);
  return text;
}

function badAnswer(message: string, reason?: string): RonError {
  return new RonError('bad_gateway', message, { op: 'fill_answer', ...(reason !== undefined && { reason }) });
}
