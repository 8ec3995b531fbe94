/** Signed name records, and the acceptance of them that `Names` promises: valid, not expired, no lower seq. */
import { createPrivateKey, createPublicKey, sign, verify, type KeyObject } from 'node:crypto';
import { sched } from '@ron/kernel';
import { formatAddress } from '@ron/proto';
import {
  decodeNameRecord,
  encodeNameRecord,
  joinSignedName,
  signedNameBytes,
  splitSignedName,
  type NameRecord,
} from '@ron/proto/names';
import { blake3 } from '@ron/simd';
import type { Names } from '../../../publish/names.ts';
import type { StoredRecord } from '../../../store/index-store.ts';
import { nameKey } from '../../keys.ts';

const SPKI_PREFIX = '302a300506032b6570032100';
const privateKey = createPrivateKey({
  key: Buffer.concat([Buffer.from('302e020100300506032b657004220420', 'hex'), Buffer.alloc(32, 9)]),
  format: 'der',
  type: 'pkcs8',
});
const signer = createPublicKey(privateKey).export({ format: 'der', type: 'spki' }).subarray(12).toString('hex');

export interface SignedValue {
  /** The key in the DHT. */
  readonly key: Uint8Array;
  readonly value: Uint8Array;
}

export function signedName(label: string, seq: number, fields: Partial<NameRecord> = {}): SignedValue {
  const record = encodeNameRecord({
    key: signer,
    label,
    value: formatAddress(Buffer.alloc(32, seq)),
    seq,
    not_after: Math.floor(sched.wall_ms() / 1000) + 86_400,
    ttl_s: 10,
    ...(seq > 1 && { previous: 'ab'.repeat(32) }),
    ...fields,
  });
  return {
    key: nameKey(signer, label),
    value: joinSignedName(sign(null, signedNameBytes(record), privateKey), record),
  };
}

const publicKeyOf = (hex: string): KeyObject =>
  createPublicKey({ key: Buffer.from(SPKI_PREFIX + hex, 'hex'), format: 'der', type: 'spki' });

export class TestNames implements Pick<Names, 'accepts'> {
  readonly highest = new Map<string, number>();

  async accepts(key: string, label: string, value: Uint8Array): Promise<StoredRecord | undefined> {
    const { record, signature } = splitSignedName(value)!;
    const decoded = decodeNameRecord(record);
    if (!decoded.ok || !verify(null, signedNameBytes(record), publicKeyOf(key), signature)) return undefined;
    const { seq, not_after } = decoded.record;
    const name = `${label}@${key}`;
    if (not_after * 1000 <= sched.wall_ms() || seq < (this.highest.get(name) ?? 0)) return undefined;
    this.highest.set(name, seq);
    return { key, label, seq, not_after, record, signature, hash: blake3(record) };
  }
}
