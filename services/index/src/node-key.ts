/**
 * The Ed25519 key of this node: it signs the checkpoints of the name log and is the identity of the node in the DHT.
 *
 * Contract: never replaced, because a new key is another node to all peers and cannot open the log of the old one. Sealed in
 * `node-key`; see `openEd25519Key`. In amnesia (`dir` undefined) the key exists in memory only.
 *
 *     const key = await openNodeKey({ dir: config.data_dir, fs, signal });
 */
import { ed25519KeyOf, openEd25519Key, type Ed25519Key, type Ed25519KeyInit } from '@ron/custody/sealed';
import { KeyType, noteSigner, type NoteSigner } from '@ron/tlog/log';
import { base58btc } from 'multiformats/bases/base58';

export type NodeKeyInit = Pick<Ed25519KeyInit, 'dir' | 'fs' | 'signal'>;

export interface NodeKey extends Ed25519Key {
  /** The peer id, as text: `12D3KooW...`. */
  readonly peer_id: string;
}

const FILE = 'node-key';
const PURPOSE = 'index-node-key';
/** An identity multihash of 36 bytes: the protobuf of a libp2p public key of type Ed25519 with 32 bytes of data. */
const PEER_ID_PREFIX = Uint8Array.of(0x00, 0x24, 0x08, 0x01, 0x12, 0x20);

export async function openNodeKey(init: NodeKeyInit): Promise<NodeKey> {
  return withPeerId(await openEd25519Key({ ...init, file: FILE, purpose: PURPOSE }));
}

/** Zeroes the seed. */
export const nodeKeyOf = (seed: Uint8Array): NodeKey => withPeerId(ed25519KeyOf(seed));

/** Signs checkpoints of the log `origin`. */
export function checkpointSigner(origin: string, key: Pick<Ed25519Key, 'spki' | 'sign'>): NoteSigner {
  const { spki } = key;
  return noteSigner({ name: origin, type: KeyType.ed25519, spki, sign: async (message) => key.sign(message) });
}

export function peerIdOf(public_key: Uint8Array): string {
  return base58btc.baseEncode(Buffer.concat([PEER_ID_PREFIX, public_key]));
}

const withPeerId = (key: Ed25519Key): NodeKey => ({ ...key, peer_id: peerIdOf(key.public_key) });
