/**
 * The checks of a webhook request before its body is read: provider, source network, `Origin`, rate of the address.
 *
 * Contract: a refused request costs no memory and no limit of the provider: a forger could use those up.
 */
import { inNetworks } from '@ron/auth';
import { RonError } from '@ron/kernel';
import type { Descriptor } from '@ron/proto';
import { networksOf } from '../providers/networks.ts';
import type { Provider, Providers } from '../providers/providers.ts';
import type { AddressRates } from './address-rates.ts';

export interface DoorRequest {
  readonly ip: string;
  headerValues(name: string): readonly string[];
}

export class Door {
  readonly #providers: Pick<Providers, 'get'>;
  readonly #rates: AddressRates;

  constructor(providers: Pick<Providers, 'get'>, rates: AddressRates) {
    this.#providers = providers;
    this.#rates = rates;
  }

  /** The provider, if the request may be read. Throws otherwise. */
  admit(name: string, request: DoorRequest): Provider {
    const provider = this.#providers.get(name);
    if (provider === undefined) {
      this.#charge(request.ip, undefined);
      throw new RonError('not_found', 'no such provider', { reason: 'POLICY_BLOCKED' });
    }
    const { descriptor, problem } = provider;
    const isListed = descriptor.networks.length > 0 && inNetworks(request.ip, networksOf(descriptor));
    this.#charge(request.ip, isListed ? name : undefined);
    if (problem !== undefined) {
      throw new RonError('forbidden', `the provider is closed: ${problem}`, { reason: 'POLICY_BLOCKED' });
    }
    if (descriptor.networks.length > 0 && !isListed) {
      throw new RonError('forbidden', 'the address is not in the networks of the provider', { reason: 'BAD_ORIGIN' });
    }
    requireOrigin(descriptor, request.headerValues('origin'));
    return provider;
  }

  #charge(ip: string, provider: string | undefined): void {
    if (this.#rates.tryTake(ip, provider)) return;
    throw new RonError('address_rate_limited', 'webhooks of this address come faster than webhooks.address_rps', {
      reason: 'RATE_LIMIT',
      retry_after_ms: 1000,
    });
  }
}

/** Browsers send `Origin`; providers do not. */
function requireOrigin({ origins }: Descriptor, given: readonly string[]): void {
  if (given.length === 0 || (given.length === 1 && origins.includes(given[0]!))) return;
  throw new RonError('forbidden', 'requests with this Origin header are refused', { reason: 'BAD_ORIGIN' });
}
