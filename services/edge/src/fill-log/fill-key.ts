/** The key that signs the checkpoints of the fill log. */
import { openEd25519Key, type Ed25519KeyInit } from '@ron/custody/sealed';

export interface FillKey {
  /** DER SubjectPublicKeyInfo of an Ed25519 key. */
  readonly spki: Uint8Array;
  sign(message: Uint8Array, signal: AbortSignal): Promise<Uint8Array>;
}

export interface FillKeySource {
  /** The key, without a call to another service; undefined if it is not known yet. */
  load(): Promise<FillKey | undefined>;
  /** Creates the key. Rejects with the cause if kms does not answer. */
  create(signal: AbortSignal): Promise<FillKey>;
}

/** A node without kms: a key of its own, sealed in `fill-key` in the data directory; in amnesia in memory only. */
export function ownKey(init: Omit<Ed25519KeyInit, 'file' | 'purpose'>): FillKeySource {
  const open = async (): Promise<FillKey> => {
    const key = await openEd25519Key({ ...init, file: 'fill-key', purpose: 'edge-fill-key' });
    return { spki: key.spki, sign: async (message) => key.sign(message) };
  };
  return { load: open, create: open };
}
