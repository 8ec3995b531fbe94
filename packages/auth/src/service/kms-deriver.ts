/**
 * Derives audience keys by kms, which holds their root: `POST /v1/kms/audience/derive`, and polls its state.
 *
 * Contract: the capability is read for each query, so a renewed one is used at once, and narrowed to it before it is sent.
 * It is sent by a Unix socket or to a pinned key only. The text of the secret is not kept.
 * Bound: `POLICIES.kms` attempts within the caller's signal and `DEADLINE_MS`.
 * Cancellation: the signal.
 */
import { JsonCalls, type AuthorizedRequest } from '@ron/client/calls';
import { reachPrivately, type Reach } from '@ron/client/node';
import { POLICIES, RonError } from '@ron/kernel';
import type { Service } from '@ron/proto';
import { narrowed } from '../capability/narrowed.ts';
import type { Derived, KeyDeriver, RootState } from '../keys/derived-keys.ts';
import { SECRET_BYTES } from '../keys/key-ring.ts';

const DEADLINE_MS = 2000;

export interface KmsDeriverInit {
  /** `unix:PATH`, or `https://` with a pin. */
  readonly url: string;
  /** The hash of the public key of kms, for `https://`. */
  readonly pin?: string | undefined;
  /** With scope `kms:audience`. Called before each query. */
  readonly capability: () => Promise<string>;
}

export class KmsDeriver implements KeyDeriver {
  readonly #init: KmsDeriverInit;
  readonly #kms: Reach;

  constructor(init: KmsDeriverInit) {
    this.#init = init;
    this.#kms = reachPrivately(init.url, init.pin);
  }

  async state(signal: AbortSignal): Promise<RootState> {
    // An open route: the capability may have been retired together with the root.
    return stateFrom(await this.#calls({}).get<Answer>('audience', 'audience', signal));
  }

  async derive(audience: Service, version: number | undefined, signal: AbortSignal): Promise<Derived> {
    const token = await this.#init.capability();
    const authorize = ({ body }: AuthorizedRequest): string => narrowed(token, { audience: 'kms', body });
    const calls = this.#calls({ authorize });
    return derivedFrom(await calls.post<Answer>('audience', 'audience/derive', { audience, version }, signal));
  }

  #calls(more: { readonly authorize?: (request: AuthorizedRequest) => string }): JsonCalls {
    // [storage I-4] [index I-4] A call to kms has a total deadline and few tries.
    return new JsonCalls('v1/kms/', { ...this.#kms, ...more, deadline_ms: DEADLINE_MS, policy: POLICIES.kms });
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
