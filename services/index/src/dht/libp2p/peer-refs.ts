/** Peer ids and addresses in answers. They are decoded when they are used: most closer peers are never contacted. */
import type { Libp2p } from '@libp2p/interface';
import { base58btc } from 'multiformats/bases/base58';
import type { PeerRef } from '../peers.ts';
import type { IsDialable } from './reported-addresses.ts';
import { endpointOf, endpointText } from './wire/addresses.ts';
import type { KadPeer } from './wire/message.ts';

/** An identity multihash of an Ed25519 key, or the sha2-256 hash of another key. */
const ED25519_PREFIX = Buffer.from([0x00, 0x24, 0x08, 0x01, 0x12, 0x20]);
const SHA256_PREFIX = Buffer.from([0x12, 0x20]);
const DIGEST_BYTES = 32;
const TEXTS_MAX = 4096;
/** base58 takes 10 us; the same peers appear in most answers. Emptied when it is full. */
const texts = new Map<string, string>();

/** The text of a multihash; undefined if it is not a peer id. */
export function peerIdText(multihash: Uint8Array): string | undefined {
  const bytes = Buffer.from(multihash.buffer, multihash.byteOffset, multihash.length);
  const key = bytes.toString('latin1');
  const known = texts.get(key);
  if (known !== undefined) return known;
  if (!hasPrefix(bytes, ED25519_PREFIX) && !hasPrefix(bytes, SHA256_PREFIX)) return undefined;
  const text = base58btc.baseEncode(bytes);
  if (texts.size >= TEXTS_MAX) texts.clear();
  texts.set(key, text);
  return text;
}

const hasPrefix = (bytes: Buffer, prefix: Buffer): boolean =>
  bytes.length === prefix.length + DIGEST_BYTES && bytes.subarray(0, prefix.length).equals(prefix);

/** A peer of an answer. */
export class AnsweredPeer implements PeerRef {
  readonly id: string;
  readonly #addrs: readonly Uint8Array[];
  readonly #isDialable: IsDialable;

  private constructor(id: string, addrs: readonly Uint8Array[], isDialable: IsDialable) {
    this.id = id;
    this.#addrs = addrs;
    this.#isDialable = isDialable;
  }

  /** Undefined if the id is malformed. */
  static of({ id, addrs }: KadPeer, isDialable: IsDialable): AnsweredPeer | undefined {
    const text = peerIdText(id);
    return text === undefined ? undefined : new AnsweredPeer(text, addrs, isDialable);
  }

  /** The addresses that can be dialed. */
  get addrs(): readonly string[] {
    const endpoints = this.#addrs.map(endpointOf).filter((endpoint) => endpoint !== undefined);
    return endpoints.filter((each) => each.kind === 'p2p' && this.#isDialable(each)).map(endpointText);
  }
}

/** The addresses for peers of this node, with its peer id; without that of the storage. */
export function addrsOfSelf(node: Libp2p): string[] {
  return node.getMultiaddrs().flatMap((addr) => (addr.toString().includes('/http') ? [] : [addr.toString()]));
}
