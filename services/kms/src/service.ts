/**
 * The topology of kms.
 *
 *     listener --> work_sign(512), fair to tenants --> signer pool --> backend
 *        |                                                |
 *        |-- work_verify(512), fair too --> threads       |
 *        `--------------> audit(2048) <-------------------'
 *                             `--> appender --> log --> checkpointer --> anchor, witness
 */
import type { Backend } from '@ron/custody';
import { orAborted, RonError } from '@ron/kernel';
import { defineService, startService, type OpenContext, type StartInit } from '@ron/service';
import { LAST_WITNESS_MS } from './audit/audit.ts';
import { concurrency } from './concurrency.ts';
import { schema, type KmsConfig } from './config.ts';
import { eventLevel, type KmsEvent } from './events.ts';
import { openParts } from './parts.ts';
import { rollbackFacts } from './rollback.ts';
import { routes } from './routes.ts';
import { notSound, type VaultStore } from './vault/vault.ts';

/** For the last entries, before the last checkpoint. */
const APPEND_MS = 1000;

/** Parts that a program may replace. */
export interface KmsOverrides {
  /** Replaces the configured backend. */
  readonly backend: Backend;
  /** Replaces the store of the vault. */
  readonly store: VaultStore;
}
export type KmsContext = OpenContext<KmsConfig, typeof concurrency, KmsEvent, KmsOverrides>;

export const kms = defineService({
  name: 'kms',
  config: schema,
  concurrency,
  eventLevel,
  async open(context: KmsContext) {
    const { config, runtime, log } = context;
    const parts = await openParts(context);
    const { vault, secrets, audience, onRotated, audit, monitor, refresher, operations } = parts;
    const { trail, checkpointer, witnesses } = audit;
    return {
      routes: routes({
        ...operations,
        registry: vault.registry,
        ledger: vault.ledger,
        secrets,
        audience,
        onRotated,
        auditor: audit.auditor,
        prove: (index, caller) => audit.prove(index, caller),
        pruner: audit.pruner,
        backend: vault.backend,
        attestation: () => refresher.current,
        retry: (op, deadline, attempt) => runtime.retry(op, attempt, { deadline }),
        log: vault.log,
        origin: vault.origin,
        vkeys: vault.vkeys,
        isPublic: config.audit.public,
        status: (caller) => audit.status(caller),
        accept: (request, caller) => audit.accept(request, caller),
      }),
      gates: {
        store: { kind: 'hard', sample: () => vault.store.problem },
        audit: { kind: 'hard', sample: () => audit.problem },
        // Verification and audience keys stay available, so that the other services of the node can run.
        audit_integrity: {
          kind: 'soft',
          lanes: ['sign'],
          sample: () => audit.unsound && notSound(audit.unsound).message,
        },
        audit_space: { kind: 'soft', sample: () => audit.space.problem },
        backend: { kind: 'soft', lanes: ['sign'], sample: () => monitor.problem },
        attestation: { kind: 'soft', sample: () => refresher.problem },
        witness: { kind: 'soft', sample: () => witnesses.problem },
        witness_age: { kind: 'soft', lanes: ['sign'], sample: () => audit.unwitnessed },
      },
      facts: rollbackFacts(config),
      async beforeStart(signal) {
        await monitor.probe();
        // Before the first signature: the witness may know a longer log.
        await witnesses.submit(signal);
        // kms starts on a full disk too; the audit gate then reports that nothing can be appended.
        if (audit.unsound === undefined)
          await vault.begin(signal).catch((err: unknown) => log.error({ err }, 'failed to write the anchor'));
      },
      tasks: {
        signer_pool: (task) => operations.queue.serve(task),
        audit_appender: ({ stopping }) => trail.run(stopping),
        audit_checkpointer: ({ stopping }) => checkpointer.run(stopping),
        store_monitor: async ({ stopping }) => {
          const failure = await orAborted(vault.store.failed, stopping).catch(() => undefined);
          if (failure !== undefined) throw failure;
        },
        witness_client: ({ stopping }) => witnesses.run(stopping),
        backend_keeper: ({ stopping }) => monitor.run(stopping),
        attestation_refresher: ({ stopping }) => refresher.run(stopping),
      },
      // Reports at once whether the backend can be used with the new configuration.
      applyConfig: () => monitor.probe(),
      // Every accepted operation has ended: the last entries are appended and covered by a checkpoint.
      flush: {
        deadline_ms: config.audit.checkpoint_deadline + APPEND_MS + LAST_WITNESS_MS,
        async run() {
          operations.queue.abortQueued(new RonError('draining', 'the service has stopped'));
          await audit.close();
        },
      },
      parts: { vault },
    };
  },
});

export type KmsInit = StartInit<KmsConfig> & Partial<KmsOverrides>;
export type Kms = Awaited<ReturnType<typeof startKms>>;

export function startKms(init: KmsInit) {
  return startService(kms, init);
}
