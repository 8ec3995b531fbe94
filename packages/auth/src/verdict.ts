/** The refusals that a capability check makes. */
import type { AccessRefusal } from '@ron/proto';

export function unauthorized(reason: string, cause?: AccessRefusal['cause']): AccessRefusal {
  return { ok: false, code: 'unauthorized', reason, ...(cause !== undefined && { cause }) };
}

export function forbidden(reason: string): AccessRefusal {
  return { ok: false, code: 'forbidden', reason };
}
