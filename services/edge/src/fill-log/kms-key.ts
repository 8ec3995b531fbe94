/**
 * The key of the fill log in kms: of purpose `raw`, tenant `edge`.
 *
 * Contract: created once; its kid and public key are in the file `kms-key` beside the log, so that later starts need no kms. It
 * is never rotated: verifiers know its public key. Each signature is verified before it is used, so a kms that lost the key
 * cannot make the log unreadable. The capability is read before each call, because it is renewed in its file, and it is
 * narrowed to the call; only a private connection receives it.
 * Bound: `CALL_MS` per call. Cancellation: by the signal of each call.
 */
import { createPublicKey, verify, type KeyObject } from 'node:crypto';
import { join } from 'node:path';
import { narrowed } from '@ron/auth/narrowed';
import { KmsClient, type AuthorizedRequest } from '@ron/client';
import { reachPrivately } from '@ron/client/node';
import { POLICIES, RonError } from '@ron/kernel';
import { readSecretFile, readWhole, rethrowDisk, writeWhole, type FileSystem } from '@ron/log';
import type { FillKey, FillKeySource } from './fill-key.ts';

const TENANT = 'edge';
const ALG = 'ed25519';
/** A crash between the creation of the key and its file must not create a second key. */
const OP_ID = 'edge-fill-log';
const FILE = 'kms-key';
const FILE_BYTES_MAX = 4096;
const CALL_MS = 5000;

export interface KmsKeyInit {
  /** `unix:PATH`, or `https://` with a pin. */
  readonly url: string;
  readonly pin: string | undefined;
  readonly capability_file: string;
  readonly fs: FileSystem;
  /** The directory of the log. */
  readonly dir: string;
}

interface Stored {
  readonly kid: string;
  readonly spki_b64: string;
}

export function kmsKey({ url, pin, capability_file, fs, dir }: KmsKeyInit): FillKeySource {
  const kms = reachPrivately(url, pin);
  const path = join(dir, FILE);
  const client = async (): Promise<KmsClient> => {
    const token = await readSecretFile(capability_file);
    const authorize = ({ body }: AuthorizedRequest): string => narrowed(token, { audience: 'kms', body });
    return new KmsClient({ ...kms, authorize, deadline_ms: CALL_MS, policy: POLICIES.kms });
  };
  return {
    load: async () => {
      const bytes = await readWhole(fs, path, FILE_BYTES_MAX).catch(rethrowDisk);
      return bytes === undefined ? undefined : keyOf(parsed(bytes, path), client);
    },
    create: async (signal) => {
      const init = { tenant: TENANT, purpose: 'raw', alg: ALG, policy: { rotate: false }, op_id: OP_ID };
      const made = await (await client()).createKey(init, { signal });
      const stored: Stored = { kid: made.kid, spki_b64: made.public.pubkey_b64 ?? '' };
      const key = keyOf(stored, client);
      await writeWhole(fs, path, Buffer.from(JSON.stringify(stored))).catch(rethrowDisk);
      return key;
    },
  };
}

function keyOf({ kid, spki_b64 }: Stored, client: () => Promise<KmsClient>): FillKey {
  const spki = Buffer.from(spki_b64, 'base64');
  const public_key = publicKeyOf(spki);
  return {
    spki,
    sign: async (message, signal) => {
      const kms = await client();
      const { sigs } = await kms.sign({ kid, message_b64: Buffer.from(message).toString('base64') }, { signal });
      const signature = Buffer.from(sigs[0]?.signature_b64 ?? '', 'base64');
      if (verify(null, message, public_key, signature)) return signature;
      throw new RonError('integrity', `kms signed with another key than ${kid}: restore its data`);
    },
  };
}

function publicKeyOf(spki: Uint8Array): KeyObject {
  try {
    return createPublicKey({ key: Buffer.from(spki), format: 'der', type: 'spki' });
  } catch (cause) {
    throw new RonError('integrity', 'the public key of the fill log is malformed', { cause });
  }
}

function parsed(bytes: Buffer, path: string): Stored {
  try {
    const { kid, spki_b64 } = JSON.parse(bytes.toString()) as Partial<Stored>;
    if (typeof kid === 'string' && typeof spki_b64 === 'string') return { kid, spki_b64 };
  } catch {
    // Refused below.
  }
  throw new RonError('audit_integrity', `${path} is damaged: restore it with the fill log`);
}
