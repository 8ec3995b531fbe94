/**
 * The checks of a webhook request before its body is read: provider, source network, `Origin`, rate of the address.
 *
 * Contract: a refused request costs no memory and no limit of the provider: a forger could use those up. Each
 * Ed25519 check of a refused request is charged to its address.
 */
import { inNetworks } from '@ron/auth';
import { RonError } from '@ron/kernel';
import type { Descriptor } from '@ron/proto';
import { networksOf } from '../providers/networks.ts';
import { closedProvider, unknownProvider } from '../providers/provider-table.ts';
import type { Provider, Providers } from '../providers/providers.ts';
import type { AddressRates } from './address-rates.ts';

export interface RequestSource {
  readonly ip: string;
  headerValues(name: string): readonly string[];
}

/** Tokens of the address for an Ed25519 check, which takes as long as ten other refusals. */
const ED25519_TOKENS = 10;

export class SourceChecks {
  readonly #providers: Pick<Providers, 'get'>;
  readonly #rates: AddressRates;

  constructor(providers: Pick<Providers, 'get'>, rates: AddressRates) {
    this.#providers = providers;
    this.#rates = rates;
  }

  /** The provider, if the request may be read. Throws otherwise. */
  admit(name: string, request: RequestSource): Provider {
    const provider = this.#providers.get(name);
    if (provider === undefined) {
      this.#charge(request.ip, undefined);
      throw unknownProvider();
    }
    const { descriptor, problem } = provider;
    const isListed = isInNetworks(descriptor, request.ip);
    this.#charge(request.ip, isListed ? name : undefined);
    if (problem !== undefined) throw closedProvider(problem);
    if (descriptor.networks.length > 0 && !isListed) {
      throw new RonError('forbidden', 'the address is not in the networks of the provider', { reason: 'BAD_ORIGIN' });
    }
    requireOrigin(descriptor, request.headerValues('origin'));
    return provider;
  }

  /** The provider in whose networks the address lies. */
  networkOf({ descriptor }: Pick<Provider, 'descriptor'>, ip: string): string | undefined {
    return isInNetworks(descriptor, ip) ? descriptor.name : undefined;
  }

  /** Called before each Ed25519 check: forgeries that were admitted together are refused once the first of them are charged. */
  requireNoDebt(provider: Pick<Provider, 'descriptor'>, ip: string): void {
    if (this.#rates.isInDebt(ip, this.networkOf(provider, ip))) throw tooFast();
  }

  /** Charges the address of a request that was refused after these checks. */
  chargeForgery(provider: Pick<Provider, 'descriptor'>, ip: string, ed25519_checks: number): void {
    if (ed25519_checks === 0) return;
    this.#rates.charge(ip, this.networkOf(provider, ip), ed25519_checks * ED25519_TOKENS);
  }

  #charge(ip: string, provider: string | undefined): void {
    if (!this.#rates.tryTake(ip, provider)) throw tooFast();
  }
}

function isInNetworks(descriptor: Descriptor, ip: string): boolean {
  return descriptor.networks.length > 0 && inNetworks(ip, networksOf(descriptor));
}

const tooFast = (): RonError =>
  new RonError('address_rate_limited', 'webhooks of this address come faster than webhooks.address_rps', {
    reason: 'RATE_LIMIT',
    retry_after_ms: 1000,
  });

/** Browsers send `Origin`; providers do not. */
function requireOrigin({ origins }: Descriptor, given: readonly string[]): void {
  if (given.length === 0 || (given.length === 1 && origins.includes(given[0]!))) return;
  throw new RonError('forbidden', 'requests with this Origin header are refused', { reason: 'BAD_ORIGIN' });
}
