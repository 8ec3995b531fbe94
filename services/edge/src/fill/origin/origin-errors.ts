/** Turns failures of a request to an origin into the answers of edge. */
import { isRonError, RonError } from '@ron/kernel';

/** Codes that mean the same to the client of edge. */
const KEPT = new Set([
  'timeout',
  'payload_too_large',
  'decompress_cap',
  'breaker_open',
  'busy',
  'canceled',
  'draining',
]);

/** The error for the waiting clients. Its cause is the failure itself. */
export function originError(error: unknown): unknown {
  // A defect, which the problem answer must not hide behind the origin.
  if (!isRonError(error)) return error;
  const isStatus = error.op === 'egress_status';
  if (!isStatus && (error.op === 'fill_answer' || KEPT.has(error.code))) return error;
  if (error.code === 'closed') return new RonError('draining', 'the service is stopping', { cause: error });
  return new RonError('bad_gateway', `the origin failed: ${error.message}`, { op: 'fill_answer', cause: error });
}

/** The operation of `io_timeouts_total`; undefined for errors that are no timeouts. */
export function timedOutOp(error: unknown): 'connect' | 'fill' | undefined {
  if (!isRonError(error, 'timeout') || error.op === 'egress_status') return undefined;
  return CONNECT_OPS.has(error.op ?? '') ? 'connect' : 'fill';
}

const CONNECT_OPS = new Set(['egress_dns', 'egress_connect', 'egress_tls']);
