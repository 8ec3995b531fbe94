/** The metrics of kms, in addition to those of the listener and the runtime. */
import type { Metrics } from '@ron/telemetry';
import type { LogSpace } from './audit/log-space.ts';
import type { KeyRegistry } from './keys/key-registry.ts';
import type { OpLedger } from './ops/op-ledger.ts';
import type { Freshness } from './verify/verifier.ts';

export interface KmsCounters {
  audit_dropped(count: number): void;
  /** An operation was refused because the log has no room for its entry. */
  audit_no_room(): void;
  /** A checkpoint was missed, or the log failed verification. */
  integrity_failed(): void;
}

export function kmsCounters(metrics: Metrics): KmsCounters {
  const dropped = metrics.counter('audit_dropped_total', 'Events that were not recorded in the audit log.');
  const noRoom = metrics.counter('kms_audit_no_room_total', 'Operations refused because the audit log has no room.');
  const failed = metrics.counter('kms_audit_integrity_failed_total', 'Missed checkpoints and failed integrity checks.');
  return {
    audit_dropped: (count) => dropped.inc(count),
    audit_no_room: () => noRoom.inc(),
    integrity_failed: () => failed.inc(),
  };
}

export interface KmsMeasured {
  readonly registry: KeyRegistry;
  readonly ledger: OpLedger;
  readonly freshness: Freshness;
  readonly log: { readonly size: number; readonly bytes: number; readonly first: number } | undefined;
  readonly space: Pick<LogSpace, 'shared_bytes' | 'reserve_bytes'>;
  /** Entries that a checkpoint covers. */
  readonly covered: { readonly value: number };
  readonly witnesses: { readonly lag_ms: number };
}

export function measureKms(metrics: Metrics, measured: KmsMeasured): void {
  const { registry, ledger, freshness, log, space, covered, witnesses } = measured;
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
  metrics.gaugeFrom('kms_audit_bytes', 'Size of the audit log, and the room for it.', ['part'], () => [
    { labels: { part: 'used' }, value: log?.bytes ?? 0 },
    { labels: { part: 'shared' }, value: space.shared_bytes },
    { labels: { part: 'reserve' }, value: space.reserve_bytes },
  ]);
  metrics.gaugeFrom('kms_audit_first_entry', 'Index of the first entry of the audit log that was not pruned.', [], () =>
    one(log?.first ?? 0),
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
