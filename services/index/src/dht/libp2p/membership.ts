/**
 * Keeps this node in the network: dials the bootstrap peers, again with backoff if no peer is connected, and looks up its own
 * neighbourhood so that the routing table fills at once and not with the next refresh of kad-dht.
 *
 * Contract: `run` ends when its signal aborts. A bootstrap peer that was lost is dialed every `CHECK_MS`, and at once if it was the
 * last connection. `problem` says why no request can leave this node.
 * Bound: one dial for each bootstrap peer and `TABLE_DIALS` for known ones at a time.
 */
import { peerIdFromString } from '@libp2p/peer-id';
import { multiaddr } from '@multiformats/multiaddr';
import { Deadline, Notify, sched } from '@ron/kernel';
import type { Libp2pPeers } from './libp2p-peers.ts';

const CHECK_MS = 30_000;
const BACKOFF_FIRST_MS = 250;
const DIAL_MS = 2000;
const LOOKUP_MS = 5000;
const TABLE_DIALS = 8;

export class Membership {
  readonly #peers: Libp2pPeers;
  readonly #bootstrap: readonly string[];
  readonly #changed = new Notify('dht_peers');
  readonly #onChange = (): void => this.#changed.notifyOne();

  constructor(peers: Libp2pPeers, bootstrap: readonly string[]) {
    this.#peers = peers;
    this.#bootstrap = bootstrap.filter((addr) => !addr.endsWith(`/p2p/${peers.self}`));
  }

  get problem(): string | undefined {
    if (this.#peers.connected > 0) return undefined;
    if (this.#bootstrap.length === 0) return 'no peer is connected: invite another node, or set dht.bootstrap';
    return `no peer is connected, none of ${this.#bootstrap.length} in dht.bootstrap can be reached`;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { node } = this.#peers;
    node.addEventListener('peer:disconnect', this.#onChange);
    node.addEventListener('peer:connect', this.#onChange);
    try {
      let backoff_ms = BACKOFF_FIRST_MS;
      let wasConnected = false;
      while (!signal.aborted) {
        await this.#connect(signal);
        const isConnected = this.#peers.connected > 0;
        if (isConnected && !wasConnected) await this.#lookUpSelf(signal);
        wasConnected = isConnected;
        backoff_ms = isConnected ? BACKOFF_FIRST_MS : Math.min(backoff_ms * 2, CHECK_MS);
        await this.#pause(isConnected, isConnected ? CHECK_MS : backoff_ms, signal);
      }
    } finally {
      node.removeEventListener('peer:disconnect', this.#onChange);
      node.removeEventListener('peer:connect', this.#onChange);
    }
  }

  /** Ends early when the first peer connects or the last one is lost. */
  async #pause(isConnected: boolean, wait_ms: number, signal: AbortSignal): Promise<void> {
    const until_ms = sched.now_ms() + wait_ms * (0.75 + sched.random() / 2);
    while (!signal.aborted && this.#peers.connected > 0 === isConnected) {
      const within_ms = until_ms - sched.now_ms();
      if (within_ms <= 0 || !(await this.#changed.notified(signal, { within_ms }).catch(() => false))) return;
    }
  }

  async #connect(signal: AbortSignal): Promise<void> {
    const { node, self } = this.#peers;
    const connected = new Set(node.getPeers().map(String));
    const targets = this.#bootstrap
      .filter((addr) => !connected.has(addr.slice(addr.lastIndexOf('/') + 1)))
      .map((addr) => multiaddr(addr));
    const known = connected.size > 0 ? [] : await this.#peers.closest(node.peerId.toMultihash().bytes, TABLE_DIALS);
    const ids = known.filter(({ id }) => id !== self).map(({ id }) => peerIdFromString(id));
    using deadline = Deadline.after('dht_dial', DIAL_MS, { signal });
    const dials = [...targets, ...ids].map((target) => deadline.run((within) => node.dial(target, { signal: within })));
    await Promise.allSettled(dials);
  }

  /** kad-dht adds the peers that it finds to its table. */
  async #lookUpSelf(signal: AbortSignal): Promise<void> {
    const { node } = this.#peers;
    using deadline = Deadline.after('dht_lookup', LOOKUP_MS, { signal });
    const key = node.peerId.toMultihash().bytes;
    await deadline
      .run(async (within) => {
        for await (const _ of node.services.kad.getClosestPeers(key, { signal: within }));
      })
      .catch(() => undefined);
  }
}
