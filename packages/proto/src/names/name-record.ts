/**
 * The record of a name: a CBOR map with integer keys, signed by the key of the name.
 *
 *     1 key         32 bytes, an Ed25519 public key
 *     2 label       text, see label.ts
 *     3 value       32 bytes, the BLAKE3 hash of the object; absent: the name is removed, or moved
 *     4 seq         1 .. 2^53-1, one more than that of the previous record
 *     5 not_after   Unix seconds
 *     6 ttl_s       0 .. 86 400, how long a resolver may cache the record
 *     7 previous    32 bytes, the BLAKE3 hash of the previous record; absent if and only if seq is 1
 *     8 moved_to    32 bytes, the key that holds the label from now on; excludes a value, and is the last record of its key
 *
 * Contract: bytes are accepted only if encoding the decoded record gives the same bytes, so each record has one encoding and
 * one hash. Functions that take foreign bytes do not throw.
 * Bound: `NAME_RECORD_BYTES_MAX`, checked before decoding.
 */
import { decode, encode } from 'cborg';
import { addressBytes, formatAddress, type Address } from '../address.ts';
import { checkLabel, isLabel, isNameKey, NAME_KEY_BYTES } from './label.ts';

export const NAME_RECORD_BYTES_MAX = 1024;
export const NAME_SIGNATURE_BYTES = 64;
export const NAME_SEQ_MAX = Number.MAX_SAFE_INTEGER;
export const NAME_TTL_S_MAX = 86_400;
const DAY_S = 86_400;
/** The usual life of a record. */
export const NAME_LIFE_S = 365 * DAY_S;
/** Two years, one of them a leap year. */
export const NAME_LIFE_S_MAX = 731 * DAY_S;
/** A signature covers this text and the bytes of the record. */
export const NAME_SIGNATURE_DOMAIN = 'ron/name/v1\n';

/** Keys and hashes are lower-case hex. */
export interface NameRecord {
  readonly key: string;
  readonly label: string;
  readonly value?: Address | undefined;
  readonly seq: number;
  /** Unix seconds. */
  readonly not_after: number;
  readonly ttl_s: number;
  readonly previous?: string | undefined;
  readonly moved_to?: string | undefined;
}

export type NameRecordResult =
  | { readonly ok: true; readonly record: NameRecord }
  | { readonly ok: false; readonly problem: string };

const FIELD = { key: 1, label: 2, value: 3, seq: 4, not_after: 5, ttl_s: 6, previous: 7, moved_to: 8 } as const;
const FIELDS: ReadonlySet<unknown> = new Set(Object.values(FIELD));
const DECODE = {
  strict: true,
  useMaps: true,
  rejectDuplicateMapKeys: true,
  allowIndefinite: false,
  allowUndefined: false,
  allowBigInt: false,
  allowInfinity: false,
  allowNaN: false,
};

/** The canonical bytes. Throws a RangeError if a field breaks its bound: that is a defect of the caller. */
export function encodeNameRecord(record: NameRecord): Uint8Array<ArrayBuffer> {
  const problem = recordProblem(record);
  if (problem !== undefined) throw new RangeError(problem);
  return encoded(record);
}

/** The record in foreign bytes, or the reason why they hold none. The signature is not checked. */
export function decodeNameRecord(bytes: Uint8Array): NameRecordResult {
  if (bytes.length > NAME_RECORD_BYTES_MAX) {
    return refused(`a name record has at most ${NAME_RECORD_BYTES_MAX} bytes, not ${bytes.length}`);
  }
  const map = decodedMap(bytes);
  if (map === undefined) return refused('the name record is not a canonical CBOR map');
  const result = fromMap(map);
  if (!result.ok) return result;
  if (!sameBytes(encoded(result.record), bytes)) return refused('the name record is not canonical CBOR');
  return result;
}

/** Why a record must not be published at `now_s`; undefined if it may. */
export function notAfterProblem(not_after: number, now_s: number): string | undefined {
  if (not_after <= now_s) return 'not_after is in the past: check the clock, or sign a new record';
  if (not_after > now_s + NAME_LIFE_S_MAX)
    return 'not_after is more than 2 years ahead: sign a record with a shorter life';
  return undefined;
}

/** The bytes that the signature covers. */
export function signedNameBytes(record: Uint8Array): Uint8Array<ArrayBuffer> {
  return joinBytes(new TextEncoder().encode(NAME_SIGNATURE_DOMAIN), record);
}

/** The value in the DHT: the signature, then the record. */
export function joinSignedName(signature: Uint8Array, record: Uint8Array): Uint8Array<ArrayBuffer> {
  return joinBytes(signature, record);
}

/** The parts of a value of the DHT; undefined if its length is impossible. */
export function splitSignedName(value: Uint8Array): { signature: Uint8Array; record: Uint8Array } | undefined {
  if (value.length <= NAME_SIGNATURE_BYTES || value.length > NAME_SIGNATURE_BYTES + NAME_RECORD_BYTES_MAX) {
    return undefined;
  }
  return { signature: value.subarray(0, NAME_SIGNATURE_BYTES), record: value.subarray(NAME_SIGNATURE_BYTES) };
}

function joinBytes(first: Uint8Array, second: Uint8Array): Uint8Array<ArrayBuffer> {
  const joined = new Uint8Array(first.length + second.length);
  joined.set(first);
  joined.set(second, first.length);
  return joined;
}

function encoded(record: NameRecord): Uint8Array<ArrayBuffer> {
  const { key, label, value, seq, not_after, ttl_s, previous, moved_to } = record;
  const map = new Map<number, unknown>([
    [FIELD.key, Uint8Array.fromHex(key)],
    [FIELD.label, label],
  ]);
  if (value !== undefined) map.set(FIELD.value, addressBytes(value));
  map.set(FIELD.seq, seq).set(FIELD.not_after, not_after).set(FIELD.ttl_s, ttl_s);
  if (previous !== undefined) map.set(FIELD.previous, Uint8Array.fromHex(previous));
  if (moved_to !== undefined) map.set(FIELD.moved_to, Uint8Array.fromHex(moved_to));
  return Uint8Array.from(encode(map));
}

/** The reason why a record is not valid in itself; undefined if it is. */
function recordProblem(record: NameRecord): string | undefined {
  const { key, label, value, seq, not_after, ttl_s, previous, moved_to } = record;
  if (!isNameKey(key)) return 'key must have 32 bytes';
  if (!isLabel(label)) return checkLabelProblem(label);
  if (!isInteger(seq, 1, NAME_SEQ_MAX)) return 'seq must be an integer from 1 to 2^53-1';
  if (!isInteger(not_after, 1, NAME_SEQ_MAX)) return 'not_after must be a Unix time in seconds';
  if (!isInteger(ttl_s, 0, NAME_TTL_S_MAX)) return `ttl_s must be an integer from 0 to ${NAME_TTL_S_MAX}`;
  if ((seq === 1) !== (previous === undefined)) {
    return seq === 1 ? 'the record with seq 1 has no previous' : 'a record with a seq above 1 requires previous';
  }
  if (previous !== undefined && !isNameKey(previous)) return 'previous must have 32 bytes';
  if (moved_to === undefined) return undefined;
  if (!isNameKey(moved_to)) return 'moved_to must have 32 bytes';
  if (moved_to === key) return 'moved_to must be another key';
  return value === undefined ? undefined : 'a record with moved_to has no value';
}

function checkLabelProblem(label: string): string {
  const result = checkLabel(label);
  return result.ok ? 'the label is not valid' : result.problem;
}

function decodedMap(bytes: Uint8Array): ReadonlyMap<unknown, unknown> | undefined {
  try {
    const value: unknown = decode(bytes, DECODE);
    return value instanceof Map ? value : undefined;
  } catch {
    return undefined; // Truncated, nested too deeply, duplicated keys, not minimal, a tag.
  }
}

function fromMap(map: ReadonlyMap<unknown, unknown>): NameRecordResult {
  for (const field of map.keys()) {
    if (!FIELDS.has(field)) return refused('the name record has an unknown field');
  }
  const hashes = ['key', 'value', 'previous', 'moved_to'] as const;
  for (const name of hashes) {
    const bytes = map.get(FIELD[name]);
    if (name !== 'key' && !map.has(FIELD[name])) continue;
    if (!(bytes instanceof Uint8Array) || bytes.length !== NAME_KEY_BYTES) return refused(`${name} must have 32 bytes`);
  }
  const hex = (name: (typeof hashes)[number]): string | undefined =>
    (map.get(FIELD[name]) as Uint8Array | undefined)?.toHex();
  const value = map.get(FIELD.value) as Uint8Array | undefined;
  const previous = hex('previous');
  const moved_to = hex('moved_to');
  const record: NameRecord = {
    key: hex('key')!,
    label: map.get(FIELD.label) as string,
    ...(value !== undefined && { value: formatAddress(value) }),
    seq: map.get(FIELD.seq) as number,
    not_after: map.get(FIELD.not_after) as number,
    ttl_s: map.get(FIELD.ttl_s) as number,
    ...(previous !== undefined && { previous }),
    ...(moved_to !== undefined && { moved_to }),
  };
  const problem = recordProblem(record);
  return problem === undefined ? { ok: true, record } : refused(problem);
}

const isInteger = (value: unknown, min: number, max: number): boolean =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= min && value <= max;

function sameBytes(left: Uint8Array, right: Uint8Array): boolean {
  return left.length === right.length && left.every((byte, at) => byte === right[at]);
}

const refused = (problem: string): NameRecordResult => ({ ok: false, problem });
