/** The metrics of interop, besides those of the listener and the runtime. Labels of providers are those that exist. */
import { sched, type Mpsc } from '@ron/kernel';
import type { Metrics } from '@ron/telemetry';
import type { AuditEvent } from './audit/audit-event.ts';
import type { DeliveryRecorder } from './deliveries/delivery-recorder.ts';
import type { AuditSink } from './audit/audit-sink.ts';
import type { Providers } from './providers/providers.ts';
import type { Receipts } from './receipts/receipts.ts';
import type { Spool } from './spool/spool.ts';
import type { SpoolDrainer } from './spool/spool-drainer.ts';
import type { Sentinel } from './upstreams/sentinel.ts';
import type { UnverifiedBytes } from './webhooks/unverified-bytes.ts';

export interface MeasuredParts {
  readonly recorder: DeliveryRecorder;
  readonly sink: AuditSink;
  readonly audit: Pick<Mpsc<AuditEvent>, 'dropped_total'>;
  readonly providers: Providers;
  readonly receipts: Receipts;
  readonly spool: Spool;
  readonly drainer: Pick<SpoolDrainer, 'conflicts_total'>;
  readonly unverified: Pick<UnverifiedBytes, 'bytes'>;
  readonly sentinel: Sentinel;
}

/** Values that are read from their owner at a scrape. */
export function measureParts(metrics: Metrics, parts: MeasuredParts): void {
  const { recorder, audit, sink, providers, receipts, sentinel } = parts;
  metrics.counterFrom('webhooks_total', 'Webhooks, by provider and outcome.', ['provider', 'outcome'], () =>
    [...recorder.totals.values()].map(({ provider, outcome, value }) => ({ labels: { provider, outcome }, value })),
  );
  metrics.counterFrom(
    'webhook_secret_uses_total',
    'Webhooks that a secret verified, by provider and version.',
    ['provider', 'version'],
    () =>
      providers
        .list()
        .flatMap(({ name, secrets }) =>
          secrets.map(({ version, uses }) => ({ labels: { provider: name, version: String(version) }, value: uses })),
        ),
  );
  metrics.counterFrom('audit_drop_total', 'Audit events that were dropped: no room, or a failed write.', [], () => [
    { labels: {}, value: audit.dropped_total + sink.failed_total },
  ]);
  metrics.gaugeFrom('webhook_unverified_bytes', 'Bytes of webhook bodies before their signature check.', [], () => [
    { labels: {}, value: parts.unverified.bytes },
  ]);
  measureSpool(metrics, parts);
  metrics.counterFrom('receipts_total', 'Receipts, by state.', ['state'], () =>
    Object.entries(receipts.totals).map(([state, value]) => ({ labels: { state }, value })),
  );
  metrics.gaugeFrom('receipts_kept', 'Receipts that are kept.', [], () => [{ labels: {}, value: receipts.kept }]);
  metrics.gaugeFrom('receipts_kept_max', 'Receipts that `receipts.max_bytes` has room for.', [], () => [
    { labels: {}, value: receipts.kept_max },
  ]);
  metrics.gaugeFrom('receipt_sign_lag_seconds', 'Age of the oldest unsigned receipt.', [], () => [
    { labels: {}, value: receipts.sign_lag_ms / 1000 },
  ]);
  metrics.gaugeFrom('brownout_active', 'Whether bridges are shed (0 or 1).', ['component'], () => [
    { labels: { component: 'bridge' }, value: Number(sentinel.mode().active) },
  ]);
}

function measureSpool(metrics: Metrics, { spool, drainer }: MeasuredParts): void {
  metrics.gaugeFrom('spool_bytes', 'Bytes of webhooks in the spool.', [], () => [{ labels: {}, value: spool.bytes }]);
  metrics.gaugeFrom('spool_deliveries', 'Webhooks in the spool.', [], () => [{ labels: {}, value: spool.count }]);
  metrics.gaugeFrom('spool_oldest_seconds', 'Age of the oldest webhook in the spool.', [], () => {
    const { oldest_ms } = spool;
    return [{ labels: {}, value: oldest_ms === undefined ? 0 : Math.max(0, sched.wall_ms() - oldest_ms) / 1000 }];
  });
  metrics.counterFrom('spool_damaged_total', 'Damaged records and parts of the spool.', [], () => [
    { labels: {}, value: spool.damaged_total },
  ]);
  metrics.gaugeFrom('spool_unread_segments', 'Segments of the spool that the disk could not read yet.', [], () => [
    { labels: {}, value: spool.unread_segments },
  ]);
  metrics.counterFrom(
    'spool_conflicts_total',
    'Spooled webhooks that were dropped: mailbox has another body with their key.',
    [],
    () => [{ labels: {}, value: drainer.conflicts_total }],
  );
}
