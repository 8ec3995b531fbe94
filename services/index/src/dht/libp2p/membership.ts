/**
 * Keeps this node in the network: dials the bootstrap peers, again with backoff if no peer is connected, and looks up its own
 * neighbourhood until the routing table is filled. kad-dht would do the latter once a second after its start, and then every
 * five minutes.
 *
 * Contract: `run` ends when its signal aborts. A bootstrap peer that was lost is dialed every `CHECK_MS`, and at once if it was the
 * last connection. The first lookup follows the first known peer, the others at growing intervals. `problem` says why no
 * request can leave this node.
 * Bound: one dial for each bootstrap peer and `TABLE_DIALS` for known ones at a time; one lookup.
 */
import { peerIdFromString } from '@libp2p/peer-id';
import { multiaddr } from '@multiformats/multiaddr';
import { Deadline, Notify, RonError, sched } from '@ron/kernel';
import type { Libp2pPeers } from './libp2p-peers.ts';

const CHECK_MS = 30_000;
const BACKOFF_FIRST_MS = 250;
const LOOKUP_FIRST_MS = 500;
const LOOKUP_LAST_MS = 300_000;
const DIAL_MS = 2000;
const LOOKUP_MS = 5000;
const TABLE_DIALS = 8;

export class Membership {
  readonly #peers: Libp2pPeers;
  readonly #bootstrap: readonly string[];
  readonly #changed = new Notify('dht_peers');
  readonly #onChange = (): void => this.#changed.notifyOne();
  #isConnected = false;
  #dial_at_ms = 0;
  #backoff_ms = BACKOFF_FIRST_MS;
  #lookup_at_ms = 0;
  #lookup_ms = LOOKUP_FIRST_MS;

  /** A malformed address is skipped with a warning: the others are enough to join. */
  constructor(peers: Libp2pPeers, bootstrap: readonly string[], warn: (error: unknown) => void) {
    this.#peers = peers;
    this.#bootstrap = bootstrap.filter((addr) => !addr.endsWith(`/p2p/${peers.self}`) && isDialable(addr, warn));
  }

  get problem(): string | undefined {
    if (this.#peers.connected > 0) return undefined;
    if (this.#bootstrap.length === 0) return 'no peer is connected: invite another node, or set dht.bootstrap';
    return `no peer is connected, none of ${this.#bootstrap.length} in dht.bootstrap can be reached`;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { node } = this.#peers;
    const { routingTable } = node.services.kad;
    node.addEventListener('peer:disconnect', this.#onChange);
    node.addEventListener('peer:connect', this.#onChange);
    routingTable.addEventListener('peer:add', this.#onChange);
    try {
      while (!signal.aborted) {
        await this.#dialIfDue(signal);
        await this.#lookUpIfDue(signal);
        await this.#pause(signal);
      }
    } finally {
      node.removeEventListener('peer:disconnect', this.#onChange);
      node.removeEventListener('peer:connect', this.#onChange);
      routingTable.removeEventListener('peer:add', this.#onChange);
    }
  }

  async #dialIfDue(signal: AbortSignal): Promise<void> {
    const wasConnected = this.#isConnected;
    this.#isConnected = this.#peers.connected > 0;
    if (sched.now_ms() < this.#dial_at_ms && this.#isConnected >= wasConnected) return;
    await this.#connect(signal);
    this.#isConnected = this.#peers.connected > 0;
    if (this.#isConnected) this.#backoff_ms = BACKOFF_FIRST_MS;
    else this.#lookup_ms = LOOKUP_FIRST_MS;
    this.#dial_at_ms = sched.now_ms() + jitter(this.#isConnected ? CHECK_MS : this.#backoff_ms);
    if (!this.#isConnected) this.#backoff_ms = Math.min(this.#backoff_ms * 2, CHECK_MS);
  }

  async #lookUpIfDue(signal: AbortSignal): Promise<void> {
    if (!this.#isLookupDue) return;
    await this.#lookUpSelf(signal);
    this.#lookup_at_ms = sched.now_ms() + jitter(this.#lookup_ms);
    this.#lookup_ms = Math.min(this.#lookup_ms * 2, LOOKUP_LAST_MS);
  }

  get #isLookupDue(): boolean {
    return this.#isConnected && this.#peers.known > 0 && sched.now_ms() >= this.#lookup_at_ms;
  }

  /** Until the next dial or lookup is due, the last peer is lost or the first one is known. */
  async #pause(signal: AbortSignal): Promise<void> {
    while (!signal.aborted && this.#peers.connected > 0 === this.#isConnected && !this.#isLookupDue) {
      const canLookUp = this.#isConnected && this.#peers.known > 0;
      const until_ms = canLookUp ? Math.min(this.#dial_at_ms, this.#lookup_at_ms) : this.#dial_at_ms;
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

function isDialable(addr: string, warn: (error: unknown) => void): boolean {
  try {
    peerIdFromString(addr.slice(addr.lastIndexOf('/') + 1));
    multiaddr(addr);
    return true;
  } catch (cause) {
    warn(new RonError('bad_request', `dht.bootstrap has a malformed address: ${addr}`, { cause }));
    return false;
  }
}

const jitter = (wait_ms: number): number => wait_ms * (0.75 + sched.random() / 2);
