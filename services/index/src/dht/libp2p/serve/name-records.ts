/**
 * Name records in the DHT: the validator of `/ron-name/...`. Stock kad-dht accepts an older record in place of
 * a newer one; here the key, the signature, the validity and the seq are checked before a record is kept or returned.
 */
import { RonError } from '@ron/kernel';
import { decodeNameRecord, splitSignedName } from '@ron/proto/names';
import { blake3 } from '@ron/simd';
import type { Names } from '../../../publish/names.ts';
import type { StoredRecord } from '../../../store/index-store.ts';
import { nameKey } from '../../keys.ts';

/** The order of the records of one name. */
export interface RecordOrder {
  /** The key that signed it, in hex. */
  readonly key: string;
  readonly seq: number;
  readonly hash: Uint8Array;
  /** The CBOR bytes. */
  readonly record: Uint8Array;
  /** Unix seconds. */
  readonly not_after: number;
}

const refused = (why: string): RonError => new RonError('unprocessable', `name record refused: ${why}`);

/** Resolves with the record if it belongs to `key` and `names` accepts it; rejects with `unprocessable` otherwise. */
export async function verifyNameValue(
  names: Pick<Names, 'accepts'>,
  key: Uint8Array,
  value: Uint8Array,
): Promise<StoredRecord> {
  const parts = splitSignedName(value);
  if (parts === undefined) throw refused('wrong length');
  const decoded = decodeNameRecord(parts.record);
  if (!decoded.ok) throw refused(decoded.problem);
  // The key is a hash: only the record itself says which name it belongs to.
  if (Buffer.compare(nameKey(decoded.record.key, decoded.record.label), key) !== 0)
    throw refused('it belongs to another key');
  const record = await names.accepts(decoded.record.key, decoded.record.label, value);
  if (record === undefined) throw refused('wrong signature, expired, or older than a known record');
  return record;
}

/** The order of a value that was verified before; undefined if it is damaged. */
export function orderOfNameValue(value: Uint8Array): RecordOrder | undefined {
  const parts = splitSignedName(value);
  if (parts === undefined) return undefined;
  const decoded = decodeNameRecord(parts.record);
  if (!decoded.ok) return undefined;
  const { key, seq, not_after } = decoded.record;
  return { key, seq, not_after, record: parts.record, hash: blake3(parts.record) };
}
