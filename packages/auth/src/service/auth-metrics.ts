/** What a service counts about the keys and revocations that it checks capabilities with. */
import type { Metrics } from '@ron/telemetry';
import type { Service } from '@ron/proto';
import { DerivedKeySource, type KeyRefreshes } from '../keys/derived-keys.ts';
import type { KeySource } from '../keys/key-source.ts';
import type { RevocationWatch } from './revocation-watch.ts';

/** Keys that come from a file are asked of nobody: then there is nothing to show. */
export function measureKeys(metrics: Metrics, audience: Service, keys: KeySource): void {
  const refreshes = (): KeyRefreshes | undefined =>
    keys instanceof DerivedKeySource ? keys.refreshes(audience) : undefined;
  metrics.counterFrom('capability_keys_asked_total', 'Questions to kms for keys, by result.', ['result'], () => {
    const found = refreshes();
    if (found === undefined) return [];
    return [
      { labels: { result: 'answered' }, value: found.answered_total },
      { labels: { result: 'failed' }, value: found.failed_total },
    ];
  });
  metrics.gaugeFrom('capability_keys_age_seconds', 'Since kms last told of keys; none before it did.', [], () => {
    const age_ms = refreshes()?.age_ms;
    return age_ms === undefined ? [] : [{ labels: {}, value: age_ms / 1000 }];
  });
}

export function measureRevocations(metrics: Metrics, watch: RevocationWatch): void {
  const gauge = (name: string, help: string, sample: () => number): void =>
    metrics.gaugeFrom(name, help, [], () => [{ labels: {}, value: sample() }]);
  gauge('revocations_age_seconds', 'Since passport was last heard of, or since the start.', () => watch.age_ms / 1000);
  gauge('revocations_known', 'Subjects with a revocation that is known here.', () => watch.size);
  gauge('revocations_put_back', '1 while passport knows less than it told before.', () => Number(watch.isPutBack));
}
