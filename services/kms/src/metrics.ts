/** What kms counts besides the listener and the runtime. */
import type { Metrics } from '@ron/telemetry';
import type { KeyBook } from './keys/key-book.ts';
import type { OpLedger } from './ops/op-ledger.ts';
import type { Freshness } from './verify/verifier.ts';

export interface KmsCounters {
  audit_dropped(count: number): void;
  /** A checkpoint was missed, or the log is not what it was. */
  integrity_failed(): void;
}

export function kmsCounters(metrics: Metrics): KmsCounters {
  const dropped = metrics.counter('audit_dropped_total', 'Events that got no place in the audit log.');
  const failed = metrics.counter(
    'kms_audit_integrity_failed_total',
    'Checkpoints that were missed, and logs that are not what they were.',
  );
  return { audit_dropped: (count) => dropped.inc(count), integrity_failed: () => failed.inc() };
}

export interface KmsMeasured {
  readonly book: KeyBook;
  readonly ledger: OpLedger;
  readonly freshness: Freshness;
  readonly log: { readonly size: number } | undefined;
  /** Entries that a checkpoint covers. */
  readonly covered: { readonly value: number };
}

export function measureKms(metrics: Metrics, { book, ledger, freshness, log, covered }: KmsMeasured): void {
  const one = (value: number): { labels: Record<string, string>; value: number }[] => [{ labels: {}, value }];
  metrics.gaugeFrom('kms_keys', 'Keys.', [], () => one(book.index.size));
  metrics.gaugeFrom('kms_op_ids', 'Operation ids that are kept.', [], () => one(ledger.size));
  metrics.gaugeFrom('kms_audit_entries', 'Entries of the audit log.', ['state'], () => [
    { labels: { state: 'durable' }, value: log?.size ?? 0 },
    { labels: { state: 'signed' }, value: covered.value },
  ]);
  metrics.gaugeFrom('verify_cache_age_ms', 'How old public keys are while the backend is away.', [], () =>
    one(freshness.age_ms),
  );
  metrics.counterFrom('verify_cache_expired_total', 'Verifications refused because keys were too old.', [], () =>
    one(freshness.expired_total),
  );
}
