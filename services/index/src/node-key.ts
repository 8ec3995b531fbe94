/**
 * The Ed25519 key of this node: it signs the checkpoints of the name log and is the identity of the node in the DHT.
 *
 * Contract: created at the first start and never replaced, because a new key is another node to all peers and cannot open the
 * log of the old one. Sealed in `node-key` with a key file of this service, not with `RON_KEK`: the identity outlives a change
 * of that key. In amnesia (`dir` undefined) the key exists in memory only.
 * Failure: `not_ready` if the file is damaged or its key file is missing, `conflict` if another process has it open.
 *
 *     const key = await openNodeKey({ dir: config.data_dir, fs, signal });
 */
import { createPrivateKey, createPublicKey, sign, type KeyObject } from 'node:crypto';
import { join } from 'node:path';
import { openUnlock, SealedFile } from '@ron/custody/sealed';
import { sched } from '@ron/kernel';
import type { FileSystem } from '@ron/log';
import { KeyType, noteSigner, type NoteSigner } from '@ron/tlog/log';
import { base58btc } from 'multiformats/bases/base58';

export interface NodeKeyInit {
  /** Undefined in amnesia. */
  readonly dir: string | undefined;
  readonly fs: FileSystem;
  readonly signal: AbortSignal;
}

export interface NodeKey {
  /** 32 bytes. */
  readonly public_key: Uint8Array;
  /** The peer id, as text: `12D3KooW...`. */
  readonly peer_id: string;
  sign(message: Uint8Array): Uint8Array;
  /** A copy of the private key, for the libp2p adapter, which zeroes it. */
  exportSeed(): Uint8Array;
}

export const SEED_BYTES = 32;
const FILE = 'node-key';
const PURPOSE = 'index-node-key';
/** DER before the seed in PKCS #8, and before the key in SubjectPublicKeyInfo. */
const PKCS8_PREFIX = Buffer.from('302e020100300506032b657004220420', 'hex');
const SPKI_PREFIX = Buffer.from('302a300506032b6570032100', 'hex');
/** An identity multihash of 36 bytes: the protobuf of a libp2p public key of type Ed25519 with 32 bytes of data. */
const PEER_ID_PREFIX = Uint8Array.of(0x00, 0x24, 0x08, 0x01, 0x12, 0x20);

interface Stored {
  readonly format: 1;
  readonly seed_b64: string;
}

export async function openNodeKey({ dir, fs, signal }: NodeKeyInit): Promise<NodeKey> {
  if (dir === undefined) return nodeKeyOf(sched.randomBytes(SEED_BYTES));
  const initial: Stored = { format: 1, seed_b64: Buffer.from(sched.randomBytes(SEED_BYTES)).toString('base64') };
  // Its warning advises `RON_KEK`, which does not apply.
  const unlock = await openUnlock({ dir, env: {}, fs, warn: () => undefined });
  await using file = await SealedFile.open<Stored>({
    path: join(dir, FILE),
    unlock,
    purpose: PURPOSE,
    initial,
    fs,
    signal,
  });
  return nodeKeyOf(Buffer.from(file.value.seed_b64, 'base64'));
}

/** Zeroes the seed. */
export function nodeKeyOf(seed: Uint8Array): NodeKey {
  const pkcs8 = Buffer.concat([PKCS8_PREFIX, seed]);
  const key = createPrivateKey({ key: pkcs8, format: 'der', type: 'pkcs8' });
  pkcs8.fill(0);
  seed.fill(0);
  const public_key = spkiOf(key).subarray(SPKI_PREFIX.length);
  return {
    public_key,
    peer_id: peerIdOf(public_key),
    sign: (message) => sign(null, message, key),
    exportSeed: () => {
      const exported = key.export({ format: 'der', type: 'pkcs8' });
      const copy = Uint8Array.from(exported.subarray(PKCS8_PREFIX.length));
      exported.fill(0);
      return copy;
    },
  };
}

/** Signs checkpoints of the log `origin`. */
export function checkpointSigner(origin: string, key: NodeKey): NoteSigner {
  const spki = Buffer.concat([SPKI_PREFIX, key.public_key]);
  return noteSigner({ name: origin, type: KeyType.ed25519, spki, sign: async (message) => key.sign(message) });
}

export function peerIdOf(public_key: Uint8Array): string {
  return base58btc.baseEncode(Buffer.concat([PEER_ID_PREFIX, public_key]));
}

const spkiOf = (key: KeyObject): Buffer => createPublicKey(key).export({ format: 'der', type: 'spki' });
