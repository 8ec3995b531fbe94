/**
 * Operations with keys: the queue of private-key operations, the services that use it, and the threads that verify.
 *
 * Contract: a private-key operation is refused while the audit log is unsound, the witness is away for too long
 * (mode `strict`), or the backend is unavailable.
 * Bound: `work_sign` and `work_verify` as declared.
 */
import { availableParallelism } from 'node:os';
import { CheckThreads } from '@ron/custody';
import { BatchQueue, RonError, type Deadline } from '@ron/kernel';
import type { ServiceRuntime } from '@ron/service';
import type { Audit } from './audit/audit.ts';
import type { BackendMonitor } from './backend/backend-monitor.ts';
import type { concurrency } from './concurrency.ts';
import type { KmsConfig } from './config.ts';
import { KeyService, type KeyEvent } from './keys/key-service.ts';
import { KeyLifecycle } from './keys/key-lifecycle.ts';
import { KeyOperations } from './keys/key-operations.ts';
import { SigningService } from './sign/signing-service.ts';
import { Signer, SignBatch } from './sign/signer.ts';
import { notSound, type Vault } from './vault/vault.ts';
import { checkSemaphore, Verifier, type Freshness } from './verify/verifier.ts';

const RETRY_AFTER_MS = 1000;
/** Besides the signing threads; one core stays free for the listener. */
const VERIFY_THREADS = Math.max(1, Math.min(2, availableParallelism() - 1));
/** The estimated cost of wrapping, deriving and creating keys. */
const OTHER_WORK_US = 200;

export interface OperationsInit {
  readonly runtime: ServiceRuntime<typeof concurrency>;
  readonly config: KmsConfig;
  readonly current: { readonly value: KmsConfig };
  readonly vault: Vault;
  readonly audit: Audit;
  readonly monitor: BackendMonitor;
  readonly freshness: Freshness;
  readonly publish: (event: KeyEvent) => void;
}

export function openOperations(init: OperationsInit) {
  const { runtime, config, current, vault, audit, monitor, freshness, publish } = init;
  const { backend, registry, ledger } = vault;
  const { auditor } = audit;
  const requireReady = (): void => {
    if (audit.unsound !== undefined) throw notSound(audit.unsound);
    const { unwitnessed } = audit;
    if (unwitnessed !== undefined)
      throw new RonError('degraded_audit', unwitnessed, { retry_after_ms: RETRY_AFTER_MS });
    const { problem } = monitor;
    if (problem !== undefined)
      throw new RonError('not_ready', `the backend is away: ${problem}`, { retry_after_ms: RETRY_AFTER_MS });
  };
  const queue = runtime.own('work_sign', (capacity) => {
    const { sign_batch: batch_max } = config.kms;
    return new BatchQueue('sign', { capacity, batch_max, newBatch: () => new SignBatch(backend) });
  });
  const enqueue = <A>(tenant: string, deadline: Deadline, work: () => Promise<A>): Promise<A> =>
    queue.submit(tenant, OTHER_WORK_US, deadline, work);
  const threads = new CheckThreads(VERIFY_THREADS);
  const limit = runtime.own('work_verify', checkSemaphore);
  const work = new KeyOperations(registry, backend);
  const lifecycle = new KeyLifecycle(registry, backend, () => current.value.kms.delete_wait);
  return {
    queue,
    requireReady,
    enqueue,
    keys: new KeyService({ registry, work, lifecycle, ledger, auditor, requireReady, enqueue, publish }),
    signing: new SigningService({ queue, signer: new Signer(registry), ledger, auditor, requireReady }),
    verifier: new Verifier({ index: () => registry.index, freshness, threads, limit }),
    [Symbol.asyncDispose]: () => threads.close(),
  };
}
