/**
 * Derives audience keys by kms, which holds their root: `POST /v1/kms/derive`.
 *
 * Contract: the capability is read for each query, so a renewed one is used at once, and narrowed to it before it is sent.
 * It is sent by a Unix socket or to a pinned key only. The text of the secret is not kept.
 * Bound: `POLICIES.kms` attempts within the caller's signal and `DEADLINE_MS`.
 * Cancellation: the signal.
 */
import { JsonCalls, type AuthorizedRequest } from '@ron/client/calls';
import { reachPrivately, type Reach } from '@ron/client/node';
import { POLICIES, RonError } from '@ron/kernel';
import { narrowed } from '../capability/narrowed.ts';
import { AUDIENCE_ROOT } from '../keys/audience-names.ts';
import type { Derived, KeyDeriver } from '../keys/derived-keys.ts';
import { SECRET_BYTES } from '../keys/key-ring.ts';

const DEADLINE_MS = 2000;

export interface KmsDeriverInit {
  /** `unix:PATH`, or `https://` with a pin. */
  readonly url: string;
  /** The hash of the public key of kms, for `https://`. */
  readonly pin?: string | undefined;
  /** With scope `kms:derive`. Called before each query. */
  readonly capability: () => Promise<string>;
}

interface Answer {
  readonly kid?: unknown;
  readonly min_version?: unknown;
  readonly secret_b64?: unknown;
}

export class KmsDeriver implements KeyDeriver {
  readonly #init: KmsDeriverInit;
  readonly #kms: Reach;

  constructor(init: KmsDeriverInit) {
    this.#init = init;
    this.#kms = reachPrivately(init.url, init.pin);
  }

  async derive(label: string, version: number | undefined, signal: AbortSignal): Promise<Derived> {
    const token = await this.#init.capability();
    const authorize = ({ body }: AuthorizedRequest): string => narrowed(token, { audience: 'kms', body });
    // [storage I-4] A call to kms has a total deadline and few tries.
    const policy = POLICIES.kms;
    const calls = new JsonCalls('v1/kms/', { ...this.#kms, authorize, deadline_ms: DEADLINE_MS, policy });
    const kid = version === undefined ? AUDIENCE_ROOT : `${AUDIENCE_ROOT}#v${version}`;
    return derivedFrom(await calls.post<Answer>('derive', 'derive', { kid, label }, signal));
  }
}

function derivedFrom({ kid, min_version, secret_b64 }: Answer): Derived {
  const version = typeof kid === 'string' && kid.startsWith(`${AUDIENCE_ROOT}#v`) ? Number(kid.split('#v')[1]) : NaN;
  const secret = Buffer.from(typeof secret_b64 === 'string' ? secret_b64 : '', 'base64');
  const isWhole = Number.isSafeInteger(version) && Number.isSafeInteger(min_version) && secret.length === SECRET_BYTES;
  if (!isWhole) throw new RonError('integrity', 'the answer of kms is not a derived key', { op: 'derive' });
  // A separate copy: small buffers share a pool with others, which zeroing must not affect.
  const own = Uint8Array.from(secret);
  secret.fill(0);
  return { version, version_min: min_version as number, secret: own };
}
