/**
 * Wires the tasks, the queues and the routes of kms: this file is its topology.
 *
 *     listener --> work_sign(512), fair to tenants --> signer pool --> backend
 *        |                                                |
 *        |-- work_verify(512), fair too --> threads       |
 *        `--------------> audit(2048) <-------------------'
 *                             `--> appender --> log --> checkpointer --> anchor, witness
 */
import { availableParallelism } from 'node:os';
import { Checker, type KeySource } from '@ron/auth';
import { openServiceAuth, type ServiceAuth } from '@ron/auth/service';
import { CheckThreads, type Backend } from '@ron/custody';
import {
  BatchQueue,
  NEVER,
  RonError,
  ServiceRuntime,
  type Deadline,
  type Log,
  type Metrics,
  type Service,
} from '@ron/kernel';
import { realFileSystem } from '@ron/log';
import {
  ConfigFollower,
  createIngress,
  ingressConfigOf,
  Readiness,
  serviceOf,
  type FollowedSource,
  type Ingress,
} from '@ron/ingress';
import { openAudit, type AuditEventOut } from './audit/audit.ts';
import { AttestationRefresher } from './backend/attestation.ts';
import { BackendMonitor } from './backend/backend-monitor.ts';
import { concurrency } from './concurrency.ts';
import type { KmsConfig } from './config.ts';
import { egressOf } from './egress.ts';
import { KeyService, type KeyEvent } from './keys/key-service.ts';
import { KeyOperations } from './keys/key-operations.ts';
import { rootDeriver, writeOwnerFile } from './keys/own-keys.ts';
import { kmsCounters, measureKms } from './metrics.ts';
import { routes } from './routes.ts';
import { SecretOperations } from './secrets/secret-operations.ts';
import { SigningService } from './sign/signing-service.ts';
import { Signer, SignBatch } from './sign/signer.ts';
import { openUnlock } from './unlock.ts';
import { notSound, openVault, type Vault, type VaultInit } from './vault/vault.ts';
import { checkSemaphore, Freshness, Verifier } from './verify/verifier.ts';

export interface KmsInit {
  readonly config: KmsConfig;
  /** The config in force; may change while the service runs. */
  readonly source?: FollowedSource<KmsConfig>;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly onFatal?: (kind: string, error: unknown) => void;
  readonly signal?: AbortSignal;
  /** Default: that of the process. */
  readonly env?: VaultInit['env'];
  /** Instead of the configured backend. */
  readonly backend?: Backend;
  /** The file system below the data directory. Default: the real one. */
  readonly fs?: VaultInit['fs'];
}

export interface Kms extends Service, AsyncDisposable {
  readonly ingress: Ingress;
  readonly runtime: ServiceRuntime<typeof concurrency>;
  readonly vault: Vault;
  readonly keys: KeySource;
}

type KmsEvent = KeyEvent | AuditEventOut | { readonly kind: 'backend'; readonly problem: string | undefined };

const VERSION = '0.1.0';
const RETRY_AFTER_MS = 1000;
/** Beside those that sign, and as many as the listener leaves room for. */
const CHECK_THREADS = Math.max(1, Math.min(2, availableParallelism() - 1));
/** What wrapping, deriving and making keys cost, about. */
const OTHER_WORK_US = 200;

export async function startKms(init: KmsInit): Promise<Kms> {
  const { metrics, log, onFatal } = init;
  const source = init.source ?? { value: init.config };
  const signal = init.signal ?? NEVER;
  const runtime = new ServiceRuntime(concurrency, { metrics, log, config: source, ...(onFatal && { onFatal }) });
  const config = runtime.watch('config', init.config);
  const shutdown = runtime.watch('shutdown', false);
  const follower = new ConfigFollower({
    source,
    config,
    shutdown,
    // A backend that a new configuration could not use should show at once.
    apply: () => backendMonitor.probe(),
    onProblem: (error) => log.error({ err: error }, 'failed to apply the configuration; correct the cause and reload'),
  });
  const events = runtime.broadcast<KmsEvent>('events');
  const eventLog = events.subscribe('event_log');
  const publish = (event: KmsEvent): void => events.publish(event);
  const counters = kmsCounters(metrics);
  const warn = (what: string): void => log.warn(what);
  const { backend: given, fs, env = process.env } = init;
  const egress = await egressOf(init.config);
  const vault = await openVault({ config: init.config, env, backend: given, fs, signal, warn });
  const { backend, registry, ledger } = vault;
  const secrets = new SecretOperations(registry, backend);
  const auth = await openAuth(init, vault, secrets, signal);
  const { keys } = auth;
  const { owner_file } = init.config.auth;
  const renewOwner = async (): Promise<void> => {
    if (owner_file !== undefined) await writeOwnerFile({ path: owner_file, keys, epochs: auth.epochs, signal });
  };
  await renewOwner();

  // Events in, signed log out.
  const audit = openAudit({ runtime, vault, config, counters, egress, log, publish });
  const { auditor, trail, checkpointer, witnesses, covered } = audit;

  // Backend: who looks after it, and who asks whether it is there.
  const freshness = new Freshness(() => config.value.kms.verify_ttl);
  const backendMonitor = new BackendMonitor({
    backend,
    interval_ms: () => config.value.kms.keep_interval,
    deadline: () => runtime.deadline('keep'),
    isStopping: () => shutdown.value,
    onProbe: (isThere) => freshness.update(isThere),
    onChange: (problem) => publish({ kind: 'backend', problem }),
    retry: (attempt, deadline) => runtime.retry('keep', attempt, { deadline }),
  });
  const refresher = new AttestationRefresher({
    backend,
    interval_ms: () => config.value.kms.attest_interval,
    deadline: () => runtime.deadline('attest'),
    isStopping: () => shutdown.value,
  });
  const requireReady = (): void => {
    if (audit.unsound !== undefined) throw notSound(audit.unsound);
    const away = backendMonitor.problem;
    if (away !== undefined)
      throw new RonError('not_ready', `the backend is away: ${away}`, { retry_after_ms: RETRY_AFTER_MS });
  };

  // Operations with private keys, each in its turn.
  const queue = runtime.own('work_sign', (capacity) => {
    const { sign_batch: batch_max } = init.config.kms;
    return new BatchQueue('sign', { capacity, batch_max, newBatch: () => new SignBatch(backend) });
  });
  const enqueue = <A>(tenant: string, deadline: Deadline, work: () => Promise<A>): Promise<A> =>
    queue.submit(tenant, OTHER_WORK_US, deadline, work);
  const work = new KeyOperations(registry, backend, () => config.value.kms.delete_wait);
  const keyService = new KeyService({ registry, work, ledger, auditor, requireReady, enqueue, publish });
  const signing = new SigningService({ queue, signer: new Signer(registry), ledger, auditor, requireReady });
  const checks = new CheckThreads(CHECK_THREADS);
  const checkLimit = runtime.own('work_verify', checkSemaphore);
  const verifier = new Verifier({ index: () => registry.index, freshness, threads: checks, limit: checkLimit });
  measureKms(metrics, { registry, ledger, freshness, log: vault.log, covered });

  const ingress = await createIngress({
    service: 'kms',
    version: VERSION,
    about: () => ({ ...rollbackOf(init.config), capability_keys: auth.origin }),
    metrics,
    counters: runtime,
    deadlines: runtime,
    config: ingressConfigOf(init.config),
    routes: routes({
      registry,
      keys: keyService,
      attestation_class: backend.attestation_class,
      attestation: () => refresher.current,
      signing,
      verifier,
      auditor,
      prove: (index, caller) => audit.prove(index, caller),
      secrets,
      requireReady,
      enqueue,
      retry: (op, deadline, attempt) => runtime.retry(op, attempt, { deadline }),
      log: vault.log,
      origin: vault.origin,
      vkeys: vault.vkeys,
      isPublic: init.config.audit.public,
    }),
    access: new Checker({ audience: 'kms', keys, epochs: auth.epochs }),
    readiness: readinessOf({
      audit: () => audit.problem,
      witness: () => witnesses.problem,
      backend: () => backendMonitor.problem,
      attestation: () => refresher.problem,
      config: init.config,
      auth,
    }),
    health: () => {
      const { fatal } = runtime.supervisor;
      return fatal === undefined ? { ok: true } : { ok: false, details: { task: fatal.kind } };
    },
    log,
  });

  await backendMonitor.probe();
  // Before anything is signed: it may know better how long the log was.
  await witnesses.submit(signal);
  // On a full disk it starts all the same: then nothing gets into the log, which says so.
  if (audit.unsound === undefined) await vault.begin(signal).catch((err: unknown) => log.error({ err }, 'the anchor'));
  runtime.spawn('signer_pool', (task) => queue.serve(task));
  runtime.spawn('audit_appender', ({ stopping }) => trail.run(stopping));
  runtime.spawn('audit_checkpointer', ({ stopping }) => checkpointer.run(stopping));
  runtime.spawn('witness_client', ({ stopping }) => witnesses.run(stopping));
  runtime.spawn('backend_keeper', ({ stopping }) => backendMonitor.run(stopping));
  runtime.spawn('attestation_refresher', ({ stopping }) => refresher.run(stopping));
  runtime.spawn('config_watch', ({ stopping }) => follower.run(stopping));
  runtime.spawn('key_refresh', ({ stopping }) =>
    auth.refreshKeys(() => config.value.auth.keys_refresh, stopping, { onRefreshed: renewOwner }),
  );
  runtime.spawn('revocation_watch', ({ stopping }) => auth.watchRevocations(stopping));
  runtime.spawn('event_log', async ({ stopping }) => {
    for (;;) {
      const event = await eventLog.recv(stopping);
      if (event === undefined) return;
      log[levelOf(event)](event, event.kind);
    }
  });
  // Who was in the queue has been answered by now, or is: their entries are written, and the last word is signed.
  runtime.onClose('audit', { deadline_ms: init.config.audit.checkpoint_deadline }, async () => {
    queue.abortQueued(new RonError('draining', 'the service has stopped'));
    await audit.close();
  });

  await ingress.listen();
  const service = serviceOf({
    ingress,
    runtime,
    drain_ms: () => config.value.drain_deadline,
    log,
    close: async () => {
      await auth.close();
      await checks.close();
      await vault.close();
    },
  });
  return {
    ...service,
    drain: () => {
      shutdown.set(true);
      return service.drain();
    },
    ingress,
    runtime,
    vault,
    keys,
  };
}

/** Each says why something is not as it should be. */
interface Watched {
  readonly audit: () => string | undefined;
  readonly witness: () => string | undefined;
  readonly backend: () => string | undefined;
  readonly attestation: () => string | undefined;
  readonly config: KmsConfig;
  readonly auth: ServiceAuth;
}

function readinessOf({ audit, witness, backend, attestation, config, auth }: Watched): Readiness {
  const readiness = new Readiness();
  readiness.gate('audit', { kind: 'hard', sample: audit });
  readiness.gate('backend', { kind: 'soft', lanes: ['sign'], sample: backend });
  readiness.gate('attestation', { kind: 'soft', sample: attestation });
  readiness.gate('witness', { kind: 'soft', sample: witness });
  for (const [name, value] of Object.entries(rollbackOf(config))) readiness.tell(name, () => value);
  auth.report(readiness);
  return readiness;
}

/** What would show that something was put back to an earlier state, and what it would not show. */
function rollbackOf({ audit, amnesia }: KmsConfig): { rollback_protection: string; rollback_unseen?: string } {
  if (amnesia.enabled) return { rollback_protection: 'none' };
  if (audit.witness_url !== undefined) return { rollback_protection: 'witness' };
  return { rollback_protection: 'keystore', rollback_unseen: 'everything put back together; only a witness sees it' };
}

function levelOf(event: KmsEvent): 'info' | 'error' {
  return event.kind === 'key' || (event.kind === 'backend' && event.problem === undefined) ? 'info' : 'error';
}

/** Capabilities of kms are checked with keys that it derives itself. What is kept of them is sealed like everything else. */
async function openAuth(
  init: KmsInit,
  vault: Vault,
  secrets: SecretOperations,
  signal: AbortSignal,
): Promise<ServiceAuth> {
  const { config, fs, log, metrics, env = process.env } = init;
  const { dir, registry, backend } = vault;
  const quiet = (): void => undefined;
  const unlock =
    dir === undefined ? undefined : await openUnlock({ config, dir, env, fs: fs ?? realFileSystem, warn: quiet });
  const deriver = rootDeriver(registry, backend, secrets);
  return await openServiceAuth({ audience: 'kms', config, dir, deriver, unlock, fs, env, log, metrics, signal });
}
