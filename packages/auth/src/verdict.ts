/** The refusals that a capability check makes. */
import type { AccessRefusal } from '@ron/proto';

export function unauthorized(reason: string): AccessRefusal {
  return { ok: false, code: 'unauthorized', reason };
}

export function forbidden(reason: string): AccessRefusal {
  return { ok: false, code: 'forbidden', reason };
}
