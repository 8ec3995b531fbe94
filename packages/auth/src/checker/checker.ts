/**
 * Checks requests against capabilities.
 *
 * Contract: phase 1 runs before any queue, and without waiting if the token is cached. The cache records only that a
 * chain of signatures is valid: expiry, revocation, address, scopes and every other caveat are evaluated for each
 * request, so a cached token expires on time. When the generation of the key source changes, the cache is cleared.
 * Bound: `tokens_max` valid tokens; `bad_tokens_max` invalid ones in a separate table, so that garbage cannot evict
 * valid tokens; `rates_max` rate counters.
 * Overflow: an evicted token is verified again on its next use.
 * Cancellation: the signal reaches the key source. Throws or rejects only if the key source is not available or the
 * revocations are too old; every other outcome is a verdict.
 */
import { hash } from 'node:crypto';
import { inspect } from 'node:util';
import type { AccessRefusal, AccessRequest, AccessVerdict, Phase2, Service } from '@ron/proto';
import { Cache } from '@ron/cache';
import { RonError, sched, touch } from '@ron/kernel';
import type { Caveat } from '../capability/caveats.ts';
import { readCapability } from '../capability/capability.ts';
import type { Capability } from '../capability/capability.ts';
import { refusalOf, wrongAudience } from '../check.ts';
import { isFromFuture, NOTHING_REVOKED } from '../revocations/epochs.ts';
import type { RevocationEpochs } from '../revocations/epochs.ts';
import { isUsableKey } from '../keys/key-ring.ts';
import type { KeySource } from '../keys/key-source.ts';
import { TOKEN_CHARS_MAX } from '../capability/limits.ts';
import { verifyChain } from '../capability/macaroon.ts';
import type { Macaroon } from '../capability/macaroon.ts';
import { BodyCheck, NOTHING_LEFT } from './phase2.ts';
import { RateCounters } from './rate-counters.ts';
import type { RateLink } from './rate-counters.ts';
import { isServiceSubject } from '../capability/subjects.ts';
import { bearerToken, decodeToken } from '../capability/token.ts';
import { forbidden, unauthorized } from '../verdict.ts';

export interface CheckerInit {
  /** The service that checks. */
  audience: Service;
  keys: KeySource;
  /** Default: nothing is revoked. */
  epochs?: RevocationEpochs;
  /**
   * Caveats that another service has enforced for the same request. Only passport sets it, to exchange a capability that
   * interop has checked. Default none.
   */
  settled?: readonly ('ip' | 'rate')[];
  /** Default 4096. */
  tokens_max?: number;
  /** Default 1024. */
  bad_tokens_max?: number;
  /** Default 16 384. */
  rates_max?: number;
}

/** A capability with a valid chain. Holds no signature and no key. */
interface Proven {
  readonly capability: Capability;
  readonly rates: readonly RateLink[];
}

const NO_TOKEN = unauthorized('a capability is required: send Authorization: Bearer <capability>');
const TOO_LONG = unauthorized(`a capability has at most ${TOKEN_CHARS_MAX} characters`);
const BAD_SIGNATURE = unauthorized('capability does not verify: its signature is invalid');
const REVOKED = unauthorized('capability was revoked', 'revoked');
const FROM_FUTURE = unauthorized(
  'capability was issued in the future: check the clocks of its issuer and of this service',
);
const UNKNOWN_KEY = unauthorized('capability does not verify: its key is unknown or retired');
/** How often a check restarts because keys changed meanwhile. */
const KEY_TRIES_MAX = 3;

export class Checker {
  readonly audience: Service;
  readonly #keys: KeySource;
  readonly #epochs: RevocationEpochs;
  /** By SHA-256 of the token, so that no token stays in memory longer than its request. */
  readonly #proven: Cache<Proven>;
  readonly #bad: Cache<true>;
  readonly #rates: RateCounters;
  readonly #settled: readonly Caveat['key'][];
  #generation: number;

  constructor(init: CheckerInit) {
    this.audience = init.audience;
    this.#keys = init.keys;
    this.#epochs = init.epochs ?? NOTHING_REVOKED;
    this.#proven = new Cache({ entries_max: init.tokens_max ?? 4096 });
    this.#bad = new Cache({ entries_max: init.bad_tokens_max ?? 1024 });
    this.#rates = new RateCounters(init.rates_max ?? 16_384);
    this.#settled = init.settled ?? [];
    this.#generation = init.keys.generation;
  }

  /** Current sizes of the caches, for metrics. */
  get sizes(): { readonly tokens: number; readonly bad_tokens: number; readonly rates: number } {
    return { tokens: this.#proven.size, bad_tokens: this.#bad.size, rates: this.#rates.size };
  }

  /** Phase 1. Returns without a promise if the token is cached. */
  checkHeaders(request: AccessRequest, signal: AbortSignal): AccessVerdict | Promise<AccessVerdict> {
    touch(this);
    const token = bearerToken(request.authorization);
    if (token === undefined) return NO_TOKEN;
    if (token.length > TOKEN_CHARS_MAX) return TOO_LONG;
    this.#forgetIfKeysChanged();
    const tokenHash = hash('sha256', token, 'hex');
    const proven = this.#proven.get(tokenHash);
    if (proven !== undefined) return this.#judge(proven, request);
    if (this.#bad.get(tokenHash) === true) return BAD_SIGNATURE;
    return this.#checkNew(token, tokenHash, request, signal);
  }

  async #checkNew(
    token: string,
    tokenHash: string,
    request: AccessRequest,
    signal: AbortSignal,
  ): Promise<AccessVerdict> {
    const macaroon = decodeToken(token);
    if (!macaroon.ok) return unauthorized(`not a capability: ${macaroon.reason}`);
    const capability = readCapability(macaroon.value);
    if (!capability.ok) return unauthorized(`not a capability: ${capability.reason}`);
    // The chain of another audience is never valid under this key; naming that audience helps more than "invalid signature".
    if (capability.value.audience !== this.audience) return wrongAudience(capability.value.audience, this.audience);
    const proven = await this.#prove(macaroon.value, capability.value, signal);
    if (proven === BAD_SIGNATURE) this.#bad.set(tokenHash, true, 0);
    if ('ok' in proven) return proven;
    this.#proven.set(tokenHash, proven, 0);
    return this.#judge(proven, request);
  }

  async #prove(macaroon: Macaroon, capability: Capability, signal: AbortSignal): Promise<Proven | AccessRefusal> {
    for (let tries = 0; tries < KEY_TRIES_MAX; tries++) {
      const generation = this.#keys.generation;
      const key = await this.#keys.key(this.audience, capability.key_id, signal);
      // The key may have been retired and zeroed since the source returned it. A zeroed key is public.
      if (this.#keys.generation !== generation) continue;
      this.#forgetIfKeysChanged();
      if (key === undefined || !isUsableKey(key)) return UNKNOWN_KEY;
      const rates: RateLink[] = [];
      const holds = verifyChain(macaroon, key, (index, signature) => {
        const caveat = capability.rates.get(index);
        // Hashed, because the signature itself is as powerful as a token.
        if (caveat === undefined) return;
        const { capability_id } = capability;
        rates.push({ id: hash('sha256', signature, 'base64url'), capability_id, caveat });
      });
      return holds ? { capability, rates } : BAD_SIGNATURE;
    }
    throw new RonError('not_ready', 'keys changed while a capability was checked', { op: 'capability' });
  }

  /** The checks whose result can differ between two requests with the same token. */
  #judge({ capability, rates }: Proven, request: AccessRequest): AccessVerdict {
    const wall_ms = sched.wall_ms();
    if (capability.epoch < this.#epochs.floor(capability.subject)) return REVOKED;
    if (this.#epochs.isRevoked(capability.capability_id)) return REVOKED;
    for (const issuer of capability.chain) if (this.#epochs.isRevoked(issuer)) return REVOKED;
    // Otherwise it would survive the revocation of all capabilities issued until now.
    if (isFromFuture(capability.epoch, wall_ms)) return FROM_FUTURE;
    if (capability.problem !== undefined) return forbidden(`capability cannot be used: ${capability.problem}`);
    const at = { audience: this.audience, scopes: capability.scopes, wall_ms };
    for (const caveat of capability.caveats) {
      if (this.#settled.includes(caveat.key)) continue;
      const refusal = refusalOf(caveat, request, at);
      if (refusal !== undefined) return refusal;
    }
    const retry_after_ms =
      rates.length === 0 || this.#settled.includes('rate') ? 0 : this.#rates.take(rates, sched.now_ms());
    if (retry_after_ms > 0) {
      return {
        ok: false,
        code: 'rate_limited',
        reason: 'capability exceeds its rate',
        retry_after_ms,
      };
    }
    const { capability_id, chain, subject, scopes, texts: caveats } = capability;
    const is_service = isServiceSubject(subject);
    const phase2 = this.#phase2(capability, request);
    return { ok: true, capability_id, chain, subject, is_service, scopes, caveats, phase2 };
  }

  #phase2(capability: Capability, request: AccessRequest): Phase2 {
    const { bodies, facts } = capability;
    const body_bytes_max = request.body_bytes === 0 ? undefined : capability.body_bytes_max;
    const later =
      request.facts_later === undefined ? [] : facts.filter(({ key }) => request.facts_later?.includes(key));
    if (body_bytes_max === undefined && bodies.length === 0 && later.length === 0) return NOTHING_LEFT;
    return new BodyCheck({ body_bytes_max, bodies, facts: later });
  }

  #forgetIfKeysChanged(): void {
    if (this.#generation === this.#keys.generation) return;
    this.#generation = this.#keys.generation;
    this.#proven.clear();
    this.#bad.clear();
  }

  toJSON(): string {
    return `Checker(${this.audience})`;
  }

  [inspect.custom](): string {
    return this.toJSON();
  }
}
