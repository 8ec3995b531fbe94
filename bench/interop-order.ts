/** Orders and reports of the load generator of the interop benchmark. */
import type { What } from './interop-requests.ts';

export interface Order {
  readonly port: number;
  readonly what: What;
  readonly requests: number;
  readonly connections: number;
  /** Default: closed loop. */
  readonly rate_per_s?: number;
  /** Default: 10 s. */
  readonly deadline_ms?: number;
  /** Local addresses of the connections, in turn. Default: 127.0.0.1. */
  readonly addresses?: readonly string[];
  /** Whether the receipt ids of the answers are reported. */
  readonly collects?: boolean;
  /** The receipt of every n-th accepted webhook is awaited until it is signed. */
  readonly receipts?: { readonly every: number; readonly authorization: string };
}

export interface Times {
  readonly count: number;
  readonly p50_ms: number;
  readonly p95_ms: number;
  readonly p99_ms: number;
  readonly longest_ms: number;
}

export interface Report {
  readonly seconds: number;
  /** CPU time of the generator while it sent. */
  readonly cpu_us: number;
  /** By status; `late` for those without an answer in time, `cut` for those whose connection ended. */
  readonly outcomes: Readonly<Record<string, number>>;
  /** Of answers with a 2xx status. */
  readonly good: Times;
  /** Good answers in each second of the run, by the time of the answer. */
  readonly good_by_second: readonly number[];
  readonly spooled: number;
  readonly receipts: readonly string[];
  /** From a 202 to the signed receipt. */
  readonly signed: Times;
}

export function timesOf(values: readonly number[]): Times {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (share: number): number => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? NaN;
  return { count: sorted.length, p50_ms: at(0.5), p95_ms: at(0.95), p99_ms: at(0.99), longest_ms: at(1) };
}
