/**
 * The results of a lookup while it runs.
 *
 * Contract: a provider is an id with a URL; a claim without a URL stands for an id only until another peer reports its URL.
 * A lookup is satisfied by one proven provider, or once two other peers have each named one that has a URL and did not fail
 * its proof. The records of this node are not a second opinion: the provider itself may have put them here.
 * Bound: `FOUND_MAX` providers, `URLS_MAX` of them with one id, `PER_PEER_MAX` from one peer, so that a peer that claims every
 * object cannot displace the others. Overflow: a provider replaces one of less worth (proven, unproven, failed or without a
 * URL), or is ignored.
 */
import { sched } from '@ron/kernel';
import { PROVIDERS_LIMIT_MAX, type Address } from '@ron/proto';
import { verifyValue } from '../../publish/signed-record.ts';
import type { FoundProvider, LookupInit } from '../dht.ts';
import type { Contribution } from './lookup.ts';
import type { PeerAnswer, ProviderClaim } from '../peers.ts';

export const FOUND_MAX = PROVIDERS_LIMIT_MAX;
export const PER_PEER_MAX = 16;
/** A peer reports one URL of an id: as many peers must lie to hide the true one. */
const URLS_MAX = 4;
/** Peers that must name a provider, if none is proven. */
const REPORTERS_MIN = 2;
/** Peers that must return a value of a name. */
const ANSWERS_MIN = 5;

const WORTH = { useless: 0, unproven: 1, proven: 2 } as const;
type Worth = (typeof WORTH)[keyof typeof WORTH];

interface Found {
  readonly claim: ProviderClaim;
  worth: Worth;
  reporters: number;
}

export class ProviderResult {
  readonly #address: Address;
  readonly #self: string;
  readonly #init: Pick<LookupInit, 'verdict' | 'onProvider'>;
  readonly #found = new Map<string, Found>();
  /** Other peers that named a provider of some worth. */
  #reporters = 0;
  #best: Worth = WORTH.useless;

  constructor(address: Address, self: string, init: Pick<LookupInit, 'verdict' | 'onProvider'>) {
    this.#address = address;
    this.#self = self;
    this.#init = init;
  }

  get isSatisfied(): boolean {
    return this.#best === WORTH.proven || this.#reporters >= REPORTERS_MIN;
  }

  /** Whether a provider was found that has a URL and did not fail its proof. */
  get isUseful(): boolean {
    return this.#best !== WORTH.useless;
  }

  get providers(): FoundProvider[] {
    return Array.from(this.#found.values(), ({ claim, reporters }) => ({ ...claim, reporters }));
  }

  /** Each peer answers at most once. Claims for this node are ignored: its own objects are in the database. */
  onAnswer(peer: string, answer: PeerAnswer): Contribution {
    const claims = new Map<string, ProviderClaim>();
    for (const claim of answer.providers) {
      if (claims.size < PER_PEER_MAX && claim.id !== this.#self) claims.set(claim.id, claim);
    }
    let best: Worth = WORTH.useless;
    for (const claim of claims.values()) best = Math.max(best, this.#report(claim)) as Worth;
    this.#best = Math.max(best, this.#best) as Worth;
    const isResult = best !== WORTH.useless;
    if (isResult && peer !== this.#self) this.#reporters += 1;
    return { isResult, closer: answer.closer };
  }

  #report(claim: ProviderClaim): Worth {
    const worth = this.#worthOf(claim);
    const key = keyOf(claim);
    const known = this.#found.get(key);
    if (known !== undefined) {
      known.reporters += 1;
      known.worth = worth;
    } else if (this.#makeRoom(claim, worth)) {
      this.#found.set(key, { claim, worth, reporters: 1 });
      this.#init.onProvider?.({ ...claim, reporters: 1 });
    }
    return worth;
  }

  #worthOf(claim: ProviderClaim): Worth {
    if (claim.url === undefined) return WORTH.useless;
    const verdict = this.#init.verdict(this.#address, claim);
    return verdict === 'failed' ? WORTH.useless : verdict === 'proven' ? WORTH.proven : WORTH.unproven;
  }

  #makeRoom({ id, url }: ProviderClaim, worth: Worth): boolean {
    const same = [...this.#found].filter(([, { claim }]) => claim.id === id);
    if (url === undefined && same.length > 0) return false;
    if (url !== undefined && this.#found.delete(keyOf({ id, url: undefined }))) return true;
    if (same.length >= URLS_MAX) return this.#dropBelow(worth, same);
    return this.#found.size < FOUND_MAX || this.#dropBelow(worth, this.#found);
  }

  #dropBelow(worth: Worth, among: Iterable<readonly [string, Found]>): boolean {
    let worst: readonly [string, Found] | undefined;
    for (const entry of among) if (worst === undefined || entry[1].worth < worst[1].worth) worst = entry;
    return worst !== undefined && worst[1].worth < worth && this.#found.delete(worst[0]);
  }
}

const keyOf = ({ id, url }: ProviderClaim): string => `${id} ${url ?? ''}`;

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

  /** A value that is not signed or has expired counts as none: peers that send or replay such must not end the lookup. */
  onAnswer({ value, closer }: PeerAnswer): Contribution {
    if (value === undefined || !this.#isValid(value)) return { isResult: false, closer };
    this.answers += 1;
    return { isResult: true, closer };
  }

  #isValid(value: Uint8Array): boolean {
    const text = Buffer.from(value).toString('latin1');
    const known = this.#seen.get(text);
    if (known !== undefined) return known;
    const signed = verifyValue(this.#signer_hex, this.#label, value);
    const isValid = signed !== undefined && signed.fields.not_after * 1000 > sched.wall_ms();
    this.#seen.set(text, isValid);
    if (isValid) this.values.push(value);
    return isValid;
  }
}
