/**
 * Derives audience keys by kms, which holds their root: `POST /v1/kms/audience/derive`, and polls its state.
 *
 * Contract: the capability is read for each query, so a renewed one is used at once. The text of the secret is not kept.
 * Bound: `POLICIES.kms` attempts within the caller's signal and `DEADLINE_MS`.
 * Cancellation: the signal.
 */
import { JsonCalls } from '@ron/client/calls';
import { POLICIES, RonError } from '@ron/kernel';
import type { Service } from '@ron/proto';
import type { Derived, KeyDeriver, RootState } from '../keys/derived-keys.ts';
import { SECRET_BYTES } from '../keys/key-ring.ts';

const DEADLINE_MS = 2000;

export interface KmsDeriverInit {
  /** Called before each query, like the capability: it may become known late. */
  readonly url: () => Promise<string>;
  /** With scope `kms:audience`. Called before each query. */
  readonly capability: () => Promise<string | undefined>;
}

export class KmsDeriver implements KeyDeriver {
  readonly #init: KmsDeriverInit;

  constructor(init: KmsDeriverInit) {
    this.#init = init;
  }

  async state(signal: AbortSignal): Promise<RootState> {
    // An open route: the capability may have been retired together with the root.
    const calls = await this.#calls(undefined);
    return stateFrom(await calls.get<Answer>('audience', 'audience', signal));
  }

  async derive(audience: Service, version: number | undefined, signal: AbortSignal): Promise<Derived> {
    const calls = await this.#calls(await this.#init.capability());
    return derivedFrom(await calls.post<Answer>('audience', 'audience/derive', { audience, version }, signal));
  }

  async #calls(capability: string | undefined): Promise<JsonCalls> {
    const url = await this.#init.url();
    // [storage I-4] A call to kms has a total deadline and few tries.
    return new JsonCalls('v1/kms/', { url, capability, deadline_ms: DEADLINE_MS, policy: POLICIES.kms });
  }
}

interface Answer {
  readonly version?: unknown;
  readonly min_version?: unknown;
  readonly root_id?: unknown;
  readonly secret_b64?: unknown;
}

function stateFrom({ version, min_version, root_id }: Answer = {}): RootState {
  if (!isVersion(version) || !isVersion(min_version) || typeof root_id !== 'string') throw malformed();
  return { version, version_min: min_version, root_id };
}

function derivedFrom({ version, min_version, secret_b64 }: Answer): Derived {
  const secret = Buffer.from(typeof secret_b64 === 'string' ? secret_b64 : '', 'base64');
  if (!isVersion(version) || !isVersion(min_version) || secret.length !== SECRET_BYTES) throw malformed();
  // A separate copy: small buffers share a pool with others, which zeroing must not affect.
  const own = Uint8Array.from(secret);
  secret.fill(0);
  return { version, version_min: min_version, secret: own };
}

const isVersion = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 1;

function malformed(): RonError {
  return new RonError('integrity', 'the answer of kms is not a derived key', { op: 'audience' });
}
