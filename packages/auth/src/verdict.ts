/** What checking a request against a capability can say. */
import type { Phase2 } from './checker/phase2.ts';

/** The codes are rows of the kernel's error table: 401, 403 and 429. */
export type RefusalCode = 'unauthorized' | 'forbidden' | 'rate_limited';

export interface Refusal {
  readonly ok: false;
  readonly code: RefusalCode;
  /** For the client. Never holds the token, its signature or a key. */
  readonly reason: string;
  /** Only with `rate_limited`. */
  readonly retry_after_ms?: number;
}

export interface Allowed {
  readonly ok: true;
  /** Names the capability in logs and audits. All that was attenuated from one capability shares its id. */
  readonly capability_id: string;
  /** To whom it was issued. */
  readonly subject: string;
  /** Whether the node issued it to one of its own services. */
  readonly is_service: boolean;
  /** What is left of its scopes after all attenuation. */
  readonly scopes: readonly string[];
  /** All its caveats as text, for callers that issue narrower capabilities. */
  readonly caveats: readonly string[];
  /** What remains to be checked while the body is read. */
  readonly phase2: Phase2;
}

export type Verdict = Allowed | Refusal;

export function unauthorized(reason: string): Refusal {
  return { ok: false, code: 'unauthorized', reason };
}

export function forbidden(reason: string): Refusal {
  return { ok: false, code: 'forbidden', reason };
}
