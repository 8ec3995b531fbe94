/**
 * Signed name records: from untrusted bytes to a verified record.
 *
 * Contract: a record is accepted only if its bytes are canonical and its key signed them. Foreign bytes never throw. Whether a
 * record may be published, and which of several is current, is decided by `rules.ts`.
 * Bound: one signature check of about 0.1 ms per record.
 */
import { createPublicKey, verify } from 'node:crypto';
import { assert } from '@ron/kernel';
import { decodeNameRecord, NAME_SIGNATURE_BYTES, signedNameBytes, splitSignedName } from '@ron/proto/names';
import type { NameRecord } from '@ron/proto/names';
import { blake3 } from '@ron/simd';
import type { StoredRecord } from '../store/index-store.ts';

/** A record as it is stored, and its fields. */
export interface SignedRecord {
  readonly stored: StoredRecord;
  readonly fields: NameRecord;
}

export type SignedResult =
  | { readonly ok: true; readonly signed: SignedRecord }
  | { readonly ok: false; readonly problem: string };

/** DER before the bare key in SubjectPublicKeyInfo. */
const SPKI_PREFIX = Buffer.from('302a300506032b6570032100', 'hex');

export function verifySigned(record: Uint8Array, signature: Uint8Array): SignedResult {
  const decoded = decodeNameRecord(record);
  if (!decoded.ok) return decoded;
  if (!isSignedBy(decoded.record.key, record, signature)) {
    return { ok: false, problem: 'the signature does not match the record and its key' };
  }
  return { ok: true, signed: { stored: storedOf(decoded.record, record, signature), fields: decoded.record } };
}

/** A value of the DHT: the signature, then the record. Undefined if it is invalid or belongs to another name. */
export function verifyValue(key: string, label: string, value: Uint8Array): SignedRecord | undefined {
  const parts = splitSignedName(value);
  if (parts === undefined) return undefined;
  const decoded = decodeNameRecord(parts.record);
  // Before the signature, which costs more.
  if (!decoded.ok || decoded.record.key !== key || decoded.record.label !== label) return undefined;
  const result = verifySigned(parts.record, parts.signature);
  return result.ok ? result.signed : undefined;
}

/** A record of the log or the database, which was verified before it was stored. Undefined if the bytes are damaged. */
export function verifiedBefore(record: Uint8Array, signature: Uint8Array): SignedRecord | undefined {
  const decoded = decodeNameRecord(record);
  if (!decoded.ok || signature.length !== NAME_SIGNATURE_BYTES) return undefined;
  return { stored: storedOf(decoded.record, record, signature), fields: decoded.record };
}

/** The fields of a stored record. */
export function fieldsOf({ record }: StoredRecord): NameRecord {
  const decoded = decodeNameRecord(record);
  assert(decoded.ok, 'a stored record was verified before');
  return decoded.record;
}

/** Copies the bytes: they may be a part of a larger buffer. */
function storedOf({ key, label, seq, not_after }: NameRecord, record: Uint8Array, signature: Uint8Array): StoredRecord {
  const hash = blake3(record);
  return { key, label, seq, not_after, record: Uint8Array.from(record), signature: Uint8Array.from(signature), hash };
}

function isSignedBy(key: string, record: Uint8Array, signature: Uint8Array): boolean {
  if (signature.length !== NAME_SIGNATURE_BYTES) return false;
  try {
    const spki = Buffer.concat([SPKI_PREFIX, Buffer.from(key, 'hex')]);
    const publicKey = createPublicKey({ key: spki, format: 'der', type: 'spki' });
    return verify(null, signedNameBytes(record), publicKey, signature);
  } catch {
    return false; // 32 bytes that are not a point of the curve.
  }
}
