/** Keys and records of names for tests. */
import { generateKeyPairSync, sign } from 'node:crypto';
import { sched } from '@ron/kernel';
import { formatAddress } from '@ron/proto';
import { encodeNameRecord, joinSignedName, NAME_LIFE_S, signedNameBytes, type NameRecord } from '@ron/proto/names';
import type { StoredRecord } from '../store/index-store.ts';
import { hex } from './rules.ts';
import { verifySigned } from './signed-record.ts';

export interface NameSigner {
  readonly key: string;
  /** A signed record. `after`: the record before it, which gives seq and previous. Default: the first record, valid for a year. */
  record(label: string, init?: Partial<NameRecord> & { after?: StoredRecord | undefined }): StoredRecord;
}

export function nameSigner(): NameSigner {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  const key = hex(publicKey.export({ format: 'der', type: 'spki' }).subarray(12));
  return {
    key,
    record(label, { after, ...init } = {}) {
      const chain = after === undefined ? { seq: 1 } : { seq: after.seq + 1, previous: hex(after.hash) };
      const not_after = Math.floor(sched.wall_ms() / 1000) + NAME_LIFE_S;
      const value = formatAddress(sched.randomBytes(32));
      const bytes = encodeNameRecord({ key, label, value, not_after, ttl_s: 60, ...chain, ...init });
      const result = verifySigned(bytes, sign(null, signedNameBytes(bytes), privateKey));
      if (!result.ok) throw new Error(result.problem);
      return result.signed.stored;
    },
  };
}

/** As peers of the DHT send it. */
export const valueOf = ({ signature, record }: StoredRecord): Uint8Array => joinSignedName(signature, record);
