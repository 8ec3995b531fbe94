/**
 * Verification of signed name records. Loaded on demand, because it needs a CBOR decoder.
 *
 * Contract: a returned record is canonical, signed by the key that it contains, and belongs to the requested name; the fields
 * that the service stated beside it agree with it. Anything else is an `integrity` error.
 */
import { RonError, sched } from '@ron/kernel/core';
import { addressHex, formatName, type NameDto, type SignedNameDto } from '@ron/proto';
import { decodeNameRecord, NAME_SIGNATURE_BYTES, signedNameBytes, type NameRecord } from '@ron/proto/names';
import { addressOf } from './object-hasher.ts';

/** The name that a caller requested. */
export interface WantedName {
  readonly label: string;
  /** Undefined if the trust list of the node chooses the key. */
  readonly key?: string | undefined;
}

/** A record whose signature is valid. */
export interface VerifiedRecord {
  readonly record: NameRecord;
  readonly signed: SignedNameDto;
  /** BLAKE3 of the record, in hex. */
  readonly hash: string;
}

export interface VerifiedName extends VerifiedRecord {
  /** The record that contradicts this one, if the name is forked. */
  readonly rival: VerifiedRecord | undefined;
  /** Older records, the newest first; empty unless they were requested. */
  readonly history: readonly VerifiedRecord[];
}

export async function verifyRecord(signed: SignedNameDto, wanted: WantedName): Promise<VerifiedRecord> {
  const bytes = fromBase64url(signed?.record, 'record');
  const signature = fromBase64url(signed.signature, 'signature');
  const decoded = decodeNameRecord(bytes);
  if (!decoded.ok) throw lie(decoded.problem);
  const { record } = decoded;
  if (record.label !== wanted.label || (wanted.key !== undefined && record.key !== wanted.key)) {
    throw lie(`the record belongs to another name than ${formatName(wanted.label, wanted.key)}`);
  }
  if (!(await isSignedBy(record.key, signature, signedNameBytes(bytes)))) throw lie('the signature is not valid');
  return {
    record,
    signed: { record: signed.record, signature: signed.signature },
    hash: addressHex(addressOf(bytes)),
  };
}

/** A name as the service states it, with its rival and its history. It may have expired: see `requireLive`. */
export async function verifyName(dto: NameDto, wanted: WantedName): Promise<VerifiedName> {
  const current = await verifyRecord(dto, wanted);
  requireAgreement(dto, current);
  const owner = { label: wanted.label, key: current.record.key };
  const rival = dto.rival === undefined ? undefined : await verifyRecord(dto.rival, owner);
  if (dto.conflict !== (rival !== undefined)) throw lie('a conflict requires the record that contradicts');
  if (rival?.hash === current.hash) throw lie('the contradicting record is the same record');
  const history: VerifiedRecord[] = [];
  let below = current.record.seq;
  for (const signed of dto.history ?? []) {
    const older = await verifyRecord(signed, owner);
    if (older.record.seq > below) throw lie('the history is not in order');
    below = older.record.seq;
    history.push(older);
  }
  return { ...current, rival, history };
}

/** Throws `not_found` if the life of the record is over. */
export function requireLive(name: VerifiedName): VerifiedName {
  const { not_after, label } = name.record;
  if (not_after * 1000 > sched.wall_ms()) return name;
  const until = new Date(not_after * 1000).toISOString();
  throw new RonError('not_found', `${label} expired at ${until}: its owner has to renew it`, { op: 'names' });
}

/** The fields beside the record must say the same: callers and scripts read them. */
function requireAgreement(dto: NameDto, { record, hash }: VerifiedRecord): void {
  const expected = {
    key: record.key,
    label: record.label,
    address: record.value ?? null,
    seq: record.seq,
    not_after: record.not_after,
    ttl_s: record.ttl_s,
    previous: record.previous ?? null,
    moved_to: record.moved_to ?? null,
    hash,
  };
  for (const [field, value] of Object.entries(expected)) {
    if (dto[field as keyof typeof expected] !== value) throw lie(`${field} differs from the signed record`);
  }
}

async function isSignedBy(key: string, signature: Uint8Array<ArrayBuffer>, message: Uint8Array<ArrayBuffer>) {
  if (signature.length !== NAME_SIGNATURE_BYTES) return false;
  try {
    const imported = await crypto.subtle.importKey('raw', Uint8Array.fromHex(key), 'Ed25519', false, ['verify']);
    return await crypto.subtle.verify('Ed25519', imported, signature, message);
  } catch (error) {
    if (error instanceof DOMException && error.name === 'NotSupportedError') throw error;
    return false; // The bytes are not a point of the curve.
  }
}

function fromBase64url(text: unknown, field: string): Uint8Array<ArrayBuffer> {
  try {
    // Two characters that differ only in unused bits must not be the same record.
    const bytes = Uint8Array.fromBase64(text as string, { alphabet: 'base64url', lastChunkHandling: 'loose' });
    if (bytes.toBase64({ alphabet: 'base64url', omitPadding: true }) === text) return bytes;
  } catch {
    // Not text, or another alphabet.
  }
  throw lie(`${field} is not base64url without padding`);
}

const lie = (problem: string): RonError =>
  new RonError('integrity', `the index sent an invalid name: ${problem}`, { op: 'names' });
