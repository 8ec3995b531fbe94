/** Nodes on loopback for tests of the adapter. */
import { createHash } from 'node:crypto';
import { RonError } from '@ron/kernel';
import { nodeKeyOf } from '../../../node-key.ts';
import { Libp2pPeers, type Libp2pPeersInit } from '../libp2p-peers.ts';
import { MemoryDhtStore } from './memory-dht-store.ts';
import { TestNames } from './test-names.ts';

export const networkKey = (byte = 1): Uint8Array =>
  Buffer.from(`/key/swarm/psk/1.0.0/\n/base16/\n${byte.toString(16).padStart(2, '0').repeat(32)}`);

let seeds = 0;

export interface TestNode {
  readonly peers: Libp2pPeers;
  readonly names: TestNames;
  readonly store: MemoryDhtStore;
  /** To open the same node again. */
  readonly init: Omit<Libp2pPeersInit, 'seed'>;
  readonly seed: Uint8Array;
}

export async function openNode(init: Partial<Libp2pPeersInit> = {}, names = new TestNames()): Promise<TestNode> {
  const seed = init.seed ?? createHash('sha256').update(`${process.pid}.${seeds++}`).digest();
  const key = nodeKeyOf(Uint8Array.from(seed));
  const store = (init.store ?? new MemoryDhtStore()) as MemoryDhtStore;
  const full: Omit<Libp2pPeersInit, 'seed'> = {
    network_key: networkKey(),
    listen: '/ip4/127.0.0.1/tcp/0',
    storage_url: `http://127.0.0.1:${7000 + (seeds % 1000)}`,
    allow: [],
    dial_ms: 20_000,
    names,
    provides: async () => false,
    warn: (error) => {
      throw new RonError('internal', 'unexpected warning', { cause: error });
    },
    ...init,
    self: key.peer_id,
    store,
  };
  const peers = await Libp2pPeers.open({ ...full, seed: Uint8Array.from(seed) });
  return { peers, names, store, init: full, seed };
}

export const refOf = ({
  self,
  listening,
}: Pick<Libp2pPeers, 'self' | 'listening'>): { id: string; addrs: readonly string[] } => ({
  id: self,
  addrs: listening,
});

/** A key of a provider record. */
export const keyOf = (text: string): Uint8Array =>
  Buffer.concat([Buffer.from([0x12, 0x20]), createHash('sha256').update(text).digest()]);
