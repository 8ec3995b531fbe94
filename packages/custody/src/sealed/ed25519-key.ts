/**
 * An Ed25519 key of a service, sealed in a file of its own.
 *
 * Contract: created at the first start and never replaced. Sealed with a key file of the directory, not with `RON_KEK`: the key
 * outlives a change of that key. Without a directory (amnesia) the key exists in memory only.
 * Failure: `not_ready` if the file is damaged or its key file is missing, `conflict` if another process has it open.
 *
 *     const key = await openEd25519Key({ dir, file: 'node-key', purpose: 'index-node-key', fs, signal });
 */
import { createPrivateKey, createPublicKey, sign } from 'node:crypto';
import { join } from 'node:path';
import { sched } from '@ron/kernel';
import type { FileSystem } from '@ron/log';
import { openUnlock } from './open-unlock.ts';
import { SealedFile } from './sealed-file.ts';

export interface Ed25519KeyInit {
  /** Undefined in amnesia. */
  readonly dir: string | undefined;
  readonly file: string;
  /** Bound to the sealed bytes. */
  readonly purpose: string;
  readonly fs: FileSystem;
  readonly signal: AbortSignal;
}

export interface Ed25519Key {
  /** 32 bytes. */
  readonly public_key: Uint8Array;
  /** The public key as DER SubjectPublicKeyInfo. */
  readonly spki: Uint8Array;
  sign(message: Uint8Array): Uint8Array;
  /** A copy of the private key; the caller zeroes it. */
  exportSeed(): Uint8Array;
}

export const SEED_BYTES = 32;
/** DER before the seed in PKCS #8, and before the key in SubjectPublicKeyInfo. */
const PKCS8_PREFIX = Buffer.from('302e020100300506032b657004220420', 'hex');
const SPKI_PREFIX_BYTES = 12;

interface Stored {
  readonly format: 1;
  readonly seed_b64: string;
}

export async function openEd25519Key({ dir, file: name, purpose, fs, signal }: Ed25519KeyInit): Promise<Ed25519Key> {
  if (dir === undefined) return ed25519KeyOf(sched.randomBytes(SEED_BYTES));
  const initial: Stored = { format: 1, seed_b64: Buffer.from(sched.randomBytes(SEED_BYTES)).toString('base64') };
  // Its warning advises `RON_KEK`, which does not apply.
  const unlock = await openUnlock({ dir, env: {}, fs, warn: () => undefined });
  await using file = await SealedFile.open<Stored>({ path: join(dir, name), unlock, purpose, initial, fs, signal });
  return ed25519KeyOf(Buffer.from(file.value.seed_b64, 'base64'));
}

/** Zeroes the seed. */
export function ed25519KeyOf(seed: Uint8Array): Ed25519Key {
  const pkcs8 = Buffer.concat([PKCS8_PREFIX, seed]);
  const key = createPrivateKey({ key: pkcs8, format: 'der', type: 'pkcs8' });
  pkcs8.fill(0);
  seed.fill(0);
  const spki = createPublicKey(key).export({ format: 'der', type: 'spki' });
  return {
    public_key: spki.subarray(SPKI_PREFIX_BYTES),
    spki,
    sign: (message) => sign(null, message, key),
    exportSeed: () => {
      const exported = key.export({ format: 'der', type: 'pkcs8' });
      const copy = Uint8Array.from(exported.subarray(PKCS8_PREFIX.length));
      exported.fill(0);
      return copy;
    },
  };
}
