/** The note of an asset on disk: its metadata as JSON. Every field is checked when it is read. */
import { isAddress } from '@ron/proto';
import type { AssetMeta, FreshnessFields, Provenance } from './cached-asset.ts';

const NOTE_BYTES_MAX = 64 * 1024;
const utf8 = new TextDecoder('utf-8', { fatal: true });

export const encodeNote = (meta: AssetMeta): Uint8Array => Buffer.from(JSON.stringify(meta), 'utf8');

/** Undefined for bytes that are not the metadata of an asset. */
export function parseNote(bytes: Uint8Array): AssetMeta | undefined {
  if (bytes.length > NOTE_BYTES_MAX) return undefined;
  try {
    return metaIn(JSON.parse(utf8.decode(bytes)));
  } catch {
    return undefined;
  }
}

type Fields = Readonly<Record<string, unknown>>;

function metaIn(value: unknown): AssetMeta | undefined {
  if (!isFields(value)) return undefined;
  const { key, address, size, media_type, etag, log_index } = value;
  if (!isText(key) || !isAddressText(address) || !isCount(size) || !isText(media_type)) return undefined;
  if (!isOptional(etag, isText) || !isOptional(log_index, isCount)) return undefined;
  const freshness = value['freshness'] === undefined ? undefined : freshnessIn(value['freshness']);
  const provenance = value['provenance'] === undefined ? undefined : provenanceIn(value['provenance']);
  if ((value['freshness'] === undefined) !== (freshness === undefined)) return undefined;
  if ((value['provenance'] === undefined) !== (provenance === undefined)) return undefined;
  // Both describe the same bytes.
  if (provenance !== undefined && (provenance.key !== key || provenance.address !== address)) return undefined;
  return { key, address, size, media_type, etag, freshness, provenance, log_index };
}

function freshnessIn(value: unknown): FreshnessFields | undefined {
  if (!isFields(value)) return undefined;
  const { cache_control, expires, date, last_modified, age_s, request_ms, response_ms } = value;
  if (!isOptional(cache_control, isText) || !isOptional(expires, isText) || !isOptional(date, isText)) return undefined;
  if (!isOptional(last_modified, isText) || !isCount(age_s)) return undefined;
  if (!isTime(request_ms) || !isTime(response_ms)) return undefined;
  return { cache_control, expires, date, last_modified, age_s, request_ms, response_ms };
}

function provenanceIn(value: unknown): Provenance | undefined {
  if (!isFields(value)) return undefined;
  const { key, host, dialled, certificate_key, etag, size, address, time_ms } = value;
  if (!isText(key) || !isText(host) || !isText(dialled) || !isText(certificate_key)) return undefined;
  if (!isOptional(etag, isText) || !isCount(size) || !isAddressText(address) || !isTime(time_ms)) return undefined;
  return { key, host, dialled, certificate_key, etag, size, address, time_ms };
}

const isFields = (value: unknown): value is Fields => typeof value === 'object' && value !== null;
const isText = (value: unknown): value is string => typeof value === 'string';
const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;
const isTime = (value: unknown): value is number => Number.isFinite(value) && (value as number) >= 0;
const isAddressText = (value: unknown): value is AssetMeta['address'] => isText(value) && isAddress(value);
const isOptional = <T>(value: unknown, is: (each: unknown) => each is T): value is T | undefined =>
  value === undefined || is(value);
