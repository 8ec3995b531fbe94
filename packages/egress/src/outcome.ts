/** How exchanges end: the bounded set of values for a metric label, and the verdict for the breaker. */
import { isRonError, type ErrorCode, type Verdict } from '@ron/kernel';

const OUTCOMES = [
  /** The caller's function returned. */
  'ok',
  /** Scheme, port, address or header not allowed. */
  'policy',
  'busy',
  'breaker_open',
  'dns',
  'connect',
  'tls',
  /** The connection was lost before the end of the answer. */
  'cut',
  /** The answer is not valid. */
  'protocol',
  /** A limit on bytes was exceeded. */
  'too_large',
  'timeout',
  'canceled',
  /** The answer had a status that is tried again. */
  'status',
  /** The caller's function failed. */
  'caller',
] as const;

export type Outcome = (typeof OUTCOMES)[number];

export type OutcomeCounts = Readonly<Record<Outcome, number>>;

export const noCounts = (): Record<Outcome, number> =>
  Object.fromEntries(OUTCOMES.map((outcome) => [outcome, 0])) as Record<Outcome, number>;

const BY_CODE: Readonly<Partial<Record<ErrorCode, Outcome>>> = {
  validation: 'policy',
  reject_policy: 'policy',
  busy: 'busy',
  breaker_open: 'breaker_open',
  timeout: 'timeout',
  canceled: 'canceled',
  closed: 'canceled',
  unreachable: 'cut',
  bad_gateway: 'protocol',
  payload_too_large: 'too_large',
  decompress_cap: 'too_large',
};

const BY_OP: Readonly<Record<string, Outcome>> = {
  egress_dns: 'dns',
  egress_connect: 'connect',
  egress_tls: 'tls',
};

/** The outcome of an error that the exchange itself caused. */
export function outcomeOf(error: unknown): Outcome {
  if (!isRonError(error)) return 'caller';
  if (error.op === 'egress_status') return 'status';
  const outcome = BY_CODE[error.code] ?? 'caller';
  const isOfStage = outcome === 'cut' || outcome === 'protocol';
  return isOfStage && error.op !== undefined ? (BY_OP[error.op] ?? outcome) : outcome;
}

/**
 * The verdict about the server from an error of the exchange itself. A refusal by policy, a full queue and a caller that
 * left give no verdict; a body above a limit comes from a server that works.
 */
export function verdictOf(error: unknown): Verdict {
  const outcome = outcomeOf(error);
  if (outcome === 'too_large') return 'success';
  return ['dns', 'connect', 'tls', 'cut', 'protocol', 'timeout', 'status'].includes(outcome) ? 'failure' : 'none';
}
