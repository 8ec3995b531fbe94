/** The metrics of passport, in addition to those of the listener and the runtime. */
import type { Metrics } from '@ron/telemetry';
import { SERVICES, type ExchangedScope } from '@ron/proto';
import type { RevocationRegistry } from './revocation-registry.ts';

export interface PassportCounters {
  issued(audience: string): void;
  verified(ok: boolean): void;
  exchanged(scope: ExchangedScope, ok: boolean): void;
  revoked(what: 'subject' | 'id' | 'all'): void;
}

export function passportCounters(
  metrics: Metrics,
  registry: RevocationRegistry,
  outbox: { readonly size: number } | undefined,
): PassportCounters {
  const issued = metrics.counter('passport_issued_total', 'Capabilities issued, by audience.', { audience: SERVICES });
  const verified = metrics.counter('passport_verified_total', 'Capabilities verified, by result.', {
    result: ['good', 'refused'],
  });
  const exchanged = metrics.counter(
    'passport_exchanged_total',
    'Capabilities of clients of interop that were exchanged for one of storage, by scope and result.',
    { scope: ['interop:put', 'interop:get'], result: ['good', 'refused'] },
  );
  const revoked = metrics.counter(
    'passport_revoked_total',
    'Revocations, by kind: one subject, one capability or all.',
    {
      what: ['subject', 'id', 'all'],
    },
  );
  metrics.gaugeFrom('passport_revoked_subjects', 'Subjects with an active revocation.', [], () => [
    { labels: {}, value: registry.size },
  ]);
  metrics.gaugeFrom('passport_entries_waiting', 'Revocations that are not in the audit log yet.', [], () => [
    { labels: {}, value: outbox?.size ?? 0 },
  ]);
  return {
    issued: (audience) => issued.at(audience).inc(),
    verified: (ok) => verified.at(ok ? 'good' : 'refused').inc(),
    exchanged: (scope, ok) => exchanged.at(scope, ok ? 'good' : 'refused').inc(),
    revoked: (what) => revoked.at(what).inc(),
  };
}
