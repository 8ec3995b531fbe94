/** Metrics of the capability keys and revocations of a service. */
import type { Metrics } from '@ron/telemetry';
import type { Service } from '@ron/proto';
import { DerivedKeySource, type KeyRefreshes } from '../keys/derived-keys.ts';
import type { KeySource } from '../keys/key-source.ts';
import type { RevocationWatch } from './revocation-watch.ts';

/** Keys from a file are not queried, so there are no metrics for them. */
export function measureKeys(metrics: Metrics, audience: Service, keys: KeySource): void {
  const refreshes = (): KeyRefreshes | undefined =>
    keys instanceof DerivedKeySource ? keys.refreshes(audience) : undefined;
  metrics.counterFrom(
    'capability_keys_asked_total',
    'Queries of kms for capability keys, by result.',
    ['result'],
    () => {
      const found = refreshes();
      if (found === undefined) return [];
      return [
        { labels: { result: 'answered' }, value: found.answered_total },
        { labels: { result: 'failed' }, value: found.failed_total },
      ];
    },
  );
  metrics.gaugeFrom(
    'capability_keys_age_seconds',
    'Time since the last answer of kms with keys; absent before the first.',
    [],
    () => {
      const age_ms = refreshes()?.age_ms;
      return age_ms === undefined ? [] : [{ labels: {}, value: age_ms / 1000 }];
    },
  );
}

export function measureRevocations(metrics: Metrics, watch: RevocationWatch): void {
  const gauge = (name: string, help: string, sample: () => number): void =>
    metrics.gaugeFrom(name, help, [], () => [{ labels: {}, value: sample() }]);
  gauge(
    'revocations_age_seconds',
    'Time since the last answer of passport, or since the start.',
    () => watch.age_ms / 1000,
  );
  metrics.counterFrom(
    'revocations_refused_total',
    'Answers in the name of passport that were refused: forged, replayed, or from another time.',
    [],
    () => [{ labels: {}, value: watch.refused_total }],
  );
  gauge('revocations_known', 'Subjects with a known revocation.', () => watch.size);
  gauge('revocations_put_back', '1 while passport returns an older version than before.', () =>
    Number(watch.isRolledBack),
  );
}
