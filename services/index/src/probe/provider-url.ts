/**
 * Which URLs of providers may be requested, and by which rules.
 *
 * Contract: the URL names an IP address, and exactly that address and port may be dialled, by HTTP or HTTPS. The DHT accepts
 * only URLs with the address of the announcing peer. Private and loopback addresses are allowed, because members of
 * a network run there; metadata services and every other special address are not. `localhost` is allowed for the own storage.
 */
import { AddressPolicy, rulesFor, type EgressInit } from '@ron/egress';
import { RonError } from '@ron/kernel';

const ALLOWED_KINDS: ReadonlySet<string | undefined> = new Set([undefined, 'loopback', 'private', 'shared']);
const LOOPBACK = ['127.0.0.1/32', '::1/128'];
const NONE_OPENED = new AddressPolicy([]);

export type ProviderRules = Required<Pick<EgressInit, 'schemes' | 'ports' | 'networks'>>;

/** Throws `validation` or `reject_policy`. */
export function providerRules(url: string): ProviderRules {
  const { schemes, ports } = rulesFor(url);
  const hostname = new URL(url).hostname.replace(/^\[(.*)\]$/, '$1');
  if (hostname === 'localhost') return { schemes, ports, networks: LOOPBACK };
  const refusal = NONE_OPENED.refusal(hostname);
  if (!ALLOWED_KINDS.has(refusal)) {
    throw new RonError('reject_policy', 'the URL of a provider must name the IP address of a host', {
      details: { reason: refusal },
    });
  }
  return { schemes, ports, networks: [`${hostname}/${hostname.includes(':') ? 128 : 32}`] };
}

/** `GET <url>/o/<address>` with a proof of the group that contains `offset`. */
export function proofUrl(url: string, address: string, offset: number): string {
  return `${url.replace(/\/+$/, '')}/o/${address}?proof=bao&offset=${offset}&length=1`;
}
