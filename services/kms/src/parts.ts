/** Opens the parts of kms, in the order in which they depend on each other. */
import { AudienceKeys } from './audience/audience-keys.ts';
import { RootEntries } from './audience/entries.ts';
import { openRootStore } from './audience/root-store.ts';
import { openAudit } from './audit/audit.ts';
import type { Caller } from './audit/auditor.ts';
import { AttestationRefresher } from './backend/attestation.ts';
import { BackendMonitor } from './backend/backend-monitor.ts';
import { egressOf } from './egress.ts';
import type { KmsEvent } from './events.ts';
import { kmsCounters, measureKms } from './metrics.ts';
import { openOperations } from './operations.ts';
import { openAuthFor } from './keys/own-keys.ts';
import { SecretOperations } from './secrets/secret-operations.ts';
import type { KmsContext } from './service.ts';
import { openVault } from './vault/vault.ts';
import { Freshness } from './verify/verifier.ts';

export type KmsParts = Awaited<ReturnType<typeof openParts>>;

export async function openParts(context: KmsContext) {
  const { config, current, runtime, log, metrics, events, isStopping, resources, overrides } = context;
  const publish = (event: KmsEvent): void => events.publish(event);
  const egress = await egressOf(config);
  const vault = resources.use(await openVault({ ...context, ...overrides, warn: (text) => log.warn(text) }));
  const { backend, registry, ledger } = vault;
  const secrets = new SecretOperations(registry, backend);
  const rootEntries = new RootEntries();
  const audience = new AudienceKeys<Caller>({
    store: openRootStore(vault.store),
    backend,
    begin: async (signal) => {
      // Not even a full disk stops these operations.
      if (vault.problem !== undefined)
        await vault.begin(signal).catch((err: unknown) => log.error({ err }, 'failed to write the anchor'));
    },
    record: (event) => rootEntries.record(event),
  });
  const onRotated = await openAuthFor(context, vault, audience.deriver);
  const counters = kmsCounters(metrics);
  const audit = openAudit({ runtime, vault, config: current, counters, egress, log, publish });
  await audit.space.load();
  rootEntries.open(audit.auditor);
  const freshness = new Freshness(() => current.value.kms.verify_ttl);
  const monitor = new BackendMonitor({
    backend,
    interval_ms: () => current.value.kms.keep_interval,
    deadline: () => runtime.deadline('keep'),
    isStopping,
    onProbe: (isAvailable) => freshness.update(isAvailable),
    onChange: (problem) => publish({ kind: 'backend', problem }),
    retry: (attempt, deadline) => runtime.retry('keep', attempt, { deadline }),
  });
  const refresher = new AttestationRefresher({
    backend,
    interval_ms: () => current.value.kms.attest_interval,
    deadline: () => runtime.deadline('attest'),
    isStopping,
  });
  const init = { runtime, config, current, vault, audit, monitor, freshness, publish };
  const operations = resources.use(openOperations(init));
  measureKms(metrics, {
    registry,
    ledger,
    freshness,
    log: vault.log,
    space: audit.space,
    covered: audit.covered,
    witnesses: audit.witnesses,
  });
  return { vault, secrets, audience, onRotated, audit, monitor, refresher, operations };
}
