/**
 * The storage URLs of providers. A peer could name the URL of a host that is not its own, and have all nodes call it.
 *
 * Contract: a URL is returned only if this node has reached the peer, proven by its key, at the IP of the URL: by an open
 * connection, or by dialing that IP. A verified IP is trusted for `TRUST_MS`.
 * Bound: `VERIFIED_MAX` IPs, the oldest is dropped; `DIALS_MAX` dials at once and `ANSWER_DIALS_MAX` for one answer, beyond
 * that a URL that needs one is not returned: a peer that names many dead providers must not use up the dials of others.
 * Cancellation: by the signal, and after `dial_ms`: then the URL is undefined.
 */
import type { Libp2p } from '@libp2p/interface';
import { peerIdFromString } from '@libp2p/peer-id';
import { multiaddr } from '@multiformats/multiaddr';
import { Deadline, sched } from '@ron/kernel';
import type { IsDialable } from './reported-addresses.ts';
import { endpointOf, endpointText, endpointUrl, type Endpoint } from './wire/addresses.ts';

const VERIFIED_MAX = 4096;
const TRUST_MS = 600_000;
const DIALS_MAX = 64;
const ANSWER_DIALS_MAX = 2;
/** URLs of one provider that are tried. */
const URLS_MAX = 2;
/** Addresses of one provider that are dialed. */
const ENDPOINTS_MAX = 4;

interface Budget {
  dials: number;
  readonly isDialable: IsDialable;
}

export class ProviderUrls {
  readonly #node: Libp2p;
  readonly #dial_ms: number;
  /** `<peer id> <ip>` to the time of its verification; the oldest first. */
  readonly #verified = new Map<string, number>();
  #dials = 0;

  constructor(node: Libp2p, dial_ms: number) {
    this.#node = node;
    this.#dial_ms = dial_ms;
  }

  /** `find`: the URL among the addresses that a peer reported for `id`; undefined if there is none or it is not its own. */
  forAnswer(isDialable: IsDialable): {
    find: (id: string, addrs: readonly Uint8Array[], signal: AbortSignal) => Promise<string | undefined>;
  } {
    const budget: Budget = { dials: ANSWER_DIALS_MAX, isDialable };
    return { find: (id, addrs, signal) => this.#find(id, addrs, budget, signal) };
  }

  async #find(
    id: string,
    addrs: readonly Uint8Array[],
    budget: Budget,
    signal: AbortSignal,
  ): Promise<string | undefined> {
    const endpoints = addrs.map(endpointOf).filter((endpoint) => endpoint !== undefined);
    const urls = endpoints.filter(({ kind }) => kind === 'http').slice(0, URLS_MAX);
    const known = urls.find(({ ip }) => this.isOwnIp(id, ip));
    if (known !== undefined) return endpointUrl(known);
    for (const url of urls) {
      const peers = endpoints.filter((each) => each.kind === 'p2p' && each.ip === url.ip && budget.isDialable(each));
      if (await this.#dial(id, peers.slice(0, ENDPOINTS_MAX), budget, signal)) return endpointUrl(url);
    }
    return undefined;
  }

  /** Whether the peer was reached at this IP. Does not use the network. */
  isOwnIp(id: string, ip: string): boolean {
    const key = `${id} ${ip}`;
    const verified_ms = this.#verified.get(key);
    if (verified_ms !== undefined && sched.now_ms() - verified_ms < TRUST_MS) return true;
    const connections = this.#node.getConnections(peerIdFromString(id));
    if (!connections.some(({ remoteAddr }) => endpointOf(remoteAddr.bytes)?.ip === ip)) return false;
    this.#remember(key);
    return true;
  }

  #remember(key: string): void {
    this.#verified.delete(key);
    this.#verified.set(key, sched.now_ms());
    if (this.#verified.size > VERIFIED_MAX) this.#verified.delete(this.#verified.keys().next().value!);
  }

  async #dial(id: string, endpoints: readonly Endpoint[], budget: Budget, signal: AbortSignal): Promise<boolean> {
    if (endpoints.length === 0 || budget.dials <= 0 || this.#dials >= DIALS_MAX) return false;
    budget.dials--;
    this.#dials++;
    try {
      using deadline = Deadline.after('dht_dial', this.#dial_ms, { signal });
      const addrs = endpoints.map((endpoint) => multiaddr(`${endpointText(endpoint)}/p2p/${id}`));
      // By force: an open connection to another IP of the peer does not prove this one.
      await deadline.run((within) => this.#node.dial(addrs, { signal: within, force: true }));
      return this.isOwnIp(id, endpoints[0]!.ip);
    } catch {
      signal.throwIfAborted();
      return false;
    } finally {
      this.#dials--;
    }
  }
}
