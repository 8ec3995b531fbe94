/**
 * The results of a lookup while it runs.
 *
 * Bound: `FOUND_MAX` providers, `PER_PEER_MAX` of them from one peer, so that a peer that claims every object cannot
 * displace the others. Overflow: further unproven providers are ignored; a proven one replaces an unproven one.
 */
import { PROVIDERS_LIMIT_MAX, type Address } from '@ron/proto';
import { verifyValue } from '../../publish/signed-record.ts';
import type { FoundProvider, LookupInit } from '../dht.ts';
import type { Contribution } from './lookup.ts';
import type { PeerAnswer, ProviderClaim } from '../peers.ts';

export const FOUND_MAX = PROVIDERS_LIMIT_MAX;
export const PER_PEER_MAX = 16;
/** Peers that must name a provider, if none is proven. */
const REPORTERS_MIN = 2;
/** Peers that must return a value of a name. */
const ANSWERS_MIN = 5;

interface Found {
  readonly claim: ProviderClaim;
  readonly isProven: boolean;
  reporters: number;
}

export class ProviderResult {
  readonly #address: Address;
  readonly #self: string;
  readonly #init: Pick<LookupInit, 'isProven' | 'onProvider'>;
  readonly #byId = new Map<string, Found>();
  #reporters = 0;
  #hasProven = false;

  constructor(address: Address, self: string, init: Pick<LookupInit, 'isProven' | 'onProvider'>) {
    this.#address = address;
    this.#self = self;
    this.#init = init;
  }

  get isSatisfied(): boolean {
    return this.#hasProven || (this.#byId.size > 0 && this.#reporters >= REPORTERS_MIN);
  }

  get providers(): FoundProvider[] {
    return Array.from(this.#byId.values(), ({ claim, reporters }) => ({ ...claim, reporters }));
  }

  /** Each peer answers at most once. Claims for this node are ignored: its own objects are in the database. */
  onAnswer(answer: PeerAnswer): Contribution {
    const claims = new Map<string, ProviderClaim>();
    for (const claim of answer.providers) {
      if (claims.size < PER_PEER_MAX && claim.id !== this.#self) claims.set(claim.id, claim);
    }
    let isResult = false;
    for (const claim of claims.values()) if (this.#report(claim)) isResult = true;
    if (claims.size > 0) this.#reporters += 1;
    return { isResult: isResult || claims.size > 0, closer: answer.closer };
  }

  /** Returns whether the provider is new. */
  #report(claim: ProviderClaim): boolean {
    const known = this.#byId.get(claim.id);
    if (known !== undefined) {
      known.reporters += 1;
      return false;
    }
    const isProven = this.#init.isProven(this.#address, claim);
    if (this.#byId.size >= FOUND_MAX && !(isProven && this.#dropUnproven())) return false;
    this.#byId.set(claim.id, { claim, isProven, reporters: 1 });
    if (isProven) this.#hasProven = true;
    this.#init.onProvider?.({ ...claim, reporters: 1 });
    return true;
  }

  #dropUnproven(): boolean {
    for (const [id, { isProven }] of this.#byId) if (!isProven) return this.#byId.delete(id);
    return false;
  }
}

export class NameResult {
  readonly #signer_hex: string;
  readonly #label: string;
  /** All distinct values, with their validity, so that each signature is verified once. Bounded by the requests of a lookup. */
  readonly #seen = new Map<string, boolean>();
  readonly values: Uint8Array[] = [];
  answers = 0;

  constructor(signer_hex: string, label: string) {
    this.#signer_hex = signer_hex;
    this.#label = label;
  }

  get isSatisfied(): boolean {
    return this.answers >= ANSWERS_MIN;
  }

  /** A value without a valid signature counts as none: peers that send garbage must not end the lookup. */
  onAnswer({ value, closer }: PeerAnswer): Contribution {
    if (value === undefined || !this.#isValid(value)) return { isResult: false, closer };
    this.answers += 1;
    return { isResult: true, closer };
  }

  #isValid(value: Uint8Array): boolean {
    const text = Buffer.from(value).toString('latin1');
    const known = this.#seen.get(text);
    if (known !== undefined) return known;
    const isValid = verifyValue(this.#signer_hex, this.#label, value) !== undefined;
    this.#seen.set(text, isValid);
    if (isValid) this.values.push(value);
    return isValid;
  }
}
