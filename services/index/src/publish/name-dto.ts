/** Names in the form in which clients receive them. */
import type { NameDto, SignedNameDto } from '@ron/proto';
import type { StoredName, StoredRecord } from '../store/index-store.ts';
import { hex, isSame } from './rules.ts';
import { fieldsOf } from './signed-record.ts';

export function signedDto({ record, signature }: StoredRecord): SignedNameDto {
  return { record: toBase64url(record), signature: toBase64url(signature) };
}

/** The rival may be in the history too, if it was current here before: it is listed once. */
export function nameDto(name: StoredName, history?: readonly StoredRecord[]): NameDto {
  const { key, label, value, seq, not_after, ttl_s, previous, moved_to } = fieldsOf(name);
  const isRival = (hash: Uint8Array): boolean => name.rival !== undefined && isSame(hash, name.rival.hash);
  return {
    ...signedDto(name),
    key,
    label,
    address: value ?? null,
    seq,
    not_after,
    ttl_s,
    previous: previous ?? null,
    moved_to: moved_to ?? null,
    hash: hex(name.hash),
    conflict: name.rival !== undefined,
    ...(name.rival && { rival: signedDto(name.rival) }),
    ...(history && { history: history.filter(({ hash }) => !isRival(hash)).map(signedDto) }),
  };
}

const toBase64url = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64url');
