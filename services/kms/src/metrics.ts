/** The metrics of kms, in addition to those of the listener and the runtime. */
import type { Metrics } from '@ron/telemetry';
import type { KeyRegistry } from './keys/key-registry.ts';
import type { OpLedger } from './ops/op-ledger.ts';
import type { Freshness } from './verify/verifier.ts';

export interface KmsCounters {
  audit_dropped(count: number): void;
  /** A checkpoint was missed, or the log failed verification. */
  integrity_failed(): void;
}

export function kmsCounters(metrics: Metrics): KmsCounters {
  const dropped = metrics.counter('audit_dropped_total', 'Events that were not recorded in the audit log.');
  const failed = metrics.counter('kms_audit_integrity_failed_total', 'Missed checkpoints and failed integrity checks.');
  return { audit_dropped: (count) => dropped.inc(count), integrity_failed: () => failed.inc() };
}

export interface KmsMeasured {
  readonly registry: KeyRegistry;
  readonly ledger: OpLedger;
  readonly freshness: Freshness;
  readonly log: { readonly size: number } | undefined;
  /** Entries that a checkpoint covers. */
  readonly covered: { readonly value: number };
  readonly witnesses: { readonly lag_ms: number };
}

export function measureKms(
  metrics: Metrics,
  { registry, ledger, freshness, log, covered, witnesses }: KmsMeasured,
): void {
  const one = (value: number): { labels: Record<string, string>; value: number }[] => [{ labels: {}, value }];
  metrics.gaugeFrom('kms_keys', 'Stored keys.', [], () => one(registry.index.size));
  metrics.gaugeFrom('kms_op_ids', 'Stored operation ids.', [], () => one(ledger.size));
  metrics.gaugeFrom('kms_audit_entries', 'Entries in the audit log.', ['state'], () => [
    { labels: { state: 'durable' }, value: log?.size ?? 0 },
    { labels: { state: 'signed' }, value: covered.value },
  ]);
  metrics.gaugeFrom(
    'kms_witness_age_seconds',
    'How long a checkpoint has been waiting for its cosignature; 0 if none waits.',
    [],
    () => one(witnesses.lag_ms / 1000),
  );
  metrics.gaugeFrom('verify_cache_age_ms', 'Age of the cached public keys while the backend is unavailable.', [], () =>
    one(freshness.age_ms),
  );
  metrics.counterFrom(
    'verify_cache_expired_total',
    'Verifications refused because the cached keys were too old.',
    [],
    () => one(freshness.expired_total),
  );
}
