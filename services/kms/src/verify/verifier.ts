/**
 * Verifies signatures with cached public keys, without the backend.
 *
 * Contract: a set of signatures is accepted exactly if those that the mode requires verify with plain `node:crypto` over the
 * documented bytes. All must be of one version. While the backend is unavailable, cached keys are used for up to `ttl_ms`
 * (then `verify_cache_expired`), and the result states their age. Imported keys do not depend on a backend.
 * Bound: `SIGNATURES_MAX` signatures, verified in threads, fair by tenant.
 * Overflow: `busy`, by the semaphore. Cancellation: by the signal.
 */
import { ALGORITHMS, verifyCost_us, type Check, type CheckThreads } from '@ron/custody';
import { FairSemaphore, RonError, sched } from '@ron/kernel';
import type { VerifyMode } from '@ron/proto';
import type { KeyIndex, Found } from '../keys/key-index.ts';
import { formatKid } from '../keys/kid.ts';
import { signedBytes, type Payload } from '../sign/message.ts';
import { effectiveMode, lacking, type Checked } from './modes.ts';

export const SIGNATURES_MAX = 8;

export interface GivenSignature {
  readonly kid?: string | undefined;
  readonly alg: string;
  readonly signature: Uint8Array;
}

export interface VerifyRequest extends Payload {
  readonly kid: string;
  readonly sigs: readonly GivenSignature[];
  readonly mode?: VerifyMode | undefined;
}

export interface Verified {
  readonly found: Found;
  readonly kid: string;
  readonly ok: boolean;
  readonly checked: readonly Checked[];
  readonly mode: VerifyMode;
  readonly reason: string | undefined;
  /** The signed bytes. */
  readonly message: Uint8Array;
  /** Set while the backend is unavailable. */
  readonly cache_age_ms: number | undefined;
}

/** The age of the cached public keys. */
export class Freshness {
  readonly #ttl_ms: () => number;
  #confirmed_ms = sched.now_ms();
  #isUnavailable = false;
  expired_total = 0;

  constructor(ttl_ms: () => number) {
    this.#ttl_ms = ttl_ms;
  }

  /** Call it after each probe of the backend. */
  update(isReachable: boolean): void {
    this.#isUnavailable = !isReachable;
    if (isReachable) this.#confirmed_ms = sched.now_ms();
  }

  /** 0 while the backend is available. */
  get age_ms(): number {
    return this.#isUnavailable ? Math.round(sched.now_ms() - this.#confirmed_ms) : 0;
  }

  /** The age to report; undefined while the backend is available. Throws if the keys are too old. */
  check(): number | undefined {
    if (!this.#isUnavailable) return undefined;
    const cache_age_ms = this.age_ms;
    if (cache_age_ms <= this.#ttl_ms()) return cache_age_ms;
    this.expired_total += 1;
    throw new RonError('verify_cache_expired', 'the backend is unavailable, and the cached public keys have expired', {
      details: { cache_age_ms },
    });
  }
}

/** Work in the threads: enough for the next batch to be ready when one ends. */
const IN_THREADS_US = 8000;
/** Work of one tenant before the next tenant's turn. */
const QUANTUM_US = 400;
const TENANTS_MAX = 256;

/** Limits the work in the threads. Further calls wait, fair by tenant. */
export const checkSemaphore = (capacity: number): FairSemaphore =>
  new FairSemaphore('verify', { limit: IN_THREADS_US, capacity, keys_max: TENANTS_MAX, quantum: QUANTUM_US });

export interface VerifierInit {
  readonly index: () => KeyIndex;
  readonly freshness: Freshness;
  readonly threads: Pick<CheckThreads, 'verify'>;
  readonly limit: FairSemaphore;
}

export class Verifier {
  readonly #init: VerifierInit;

  constructor(init: VerifierInit) {
    this.#init = init;
  }

  async verify(request: VerifyRequest, signal: AbortSignal): Promise<Verified> {
    const { index, freshness, threads, limit } = this.#init;
    const found = index().find(versionIn(request));
    const { record, version } = found;
    const { signs } = ALGORITHMS[record.alg];
    if (signs.length === 0) throw new RonError('validation', `keys of ${record.alg} do not sign`);
    const cache_age_ms = record.imported ? undefined : freshness.check();
    const mode = effectiveMode(record, request.mode);
    const kid = formatKid(record.name, version.version);
    const message = signedBytes(record.purpose, kid, request);
    const result = { found, kid, mode, message, cache_age_ms };
    const retired = unusable(found);
    if (retired !== undefined) return { ...result, ok: false, checked: [], reason: retired };
    const checks = request.sigs.map(({ alg, signature }) => {
      const part = version.public.find((each) => each.alg === alg);
      if (part === undefined) throw new RonError('validation', `${record.name} makes no ${alg} signatures`);
      return { part: part as Check['part'], message, signature };
    });
    const cost_us = checks.reduce((sum, { part }) => sum + verifyCost_us(part.alg, message.length), 0);
    const good = await limit.run(record.tenant, cost_us, signal, () => threads.verify(checks, signal));
    const checked = checks.map(({ part: { alg } }, at): Checked => ({ alg, ok: good[at]! }));
    const reason = lacking(mode, signs, checked);
    return { ...result, ok: reason === undefined, checked, reason };
  }
}

/** A disabled key verifies: its public key is known, and its signatures were made while it was enabled. */
function unusable({ record, version }: Found): string | undefined {
  if (record.deleted === true) return 'the key was deleted';
  if (version.deleted === true) return `version ${version.version} was deleted`;
  if (version.version < record.min_version)
    return `version ${version.version} is below min_version ${record.min_version}`;
  return undefined;
}

/** The kid that the signatures and the request agree on. */
function versionIn({ kid, sigs }: VerifyRequest): string {
  const named = sigs.map((sig) => sig.kid).filter((each) => each !== undefined);
  const [first] = named;
  if (named.some((each) => each !== first)) {
    throw new RonError('validation', 'the signatures belong to different keys or versions');
  }
  if (new Set(sigs.map((sig) => sig.alg)).size !== sigs.length) {
    throw new RonError('validation', 'the request contains two signatures of one algorithm');
  }
  if (first === undefined || first === kid) return kid;
  if (first.startsWith(`${kid}#`)) return first;
  throw new RonError('validation', 'the signatures belong to another key or version than kid');
}
