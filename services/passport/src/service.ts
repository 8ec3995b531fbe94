/**
 * Wires the tasks and the routes of passport: this file is its topology.
 *
 *     listener --> issue, verify: inline, with keys that kms derived
 *        |-------> revoke --> registry (sealed, on disk) --> revocations (watch)
 *        `-------> held questions of services <--------------'
 */
import { join } from 'node:path';
import { Checker, NO_REVOCATIONS, requireDocument, type KeySource } from '@ron/auth';
import { HOLD_MS, openServiceAuth, type ServiceAuth } from '@ron/auth/service';
import { openUnlock, SealedFile } from '@ron/custody/sealed';
import { LongPoll, NEVER, ServiceRuntime, type Log, type Metrics, type Service, type Watch } from '@ron/kernel';
import {
  ConfigFollower,
  createIngress,
  ingressConfigOf,
  Readiness,
  serviceOf,
  type FollowedSource,
  type Ingress,
} from '@ron/ingress';
import { realFileSystem, type FileSystem } from '@ron/log';
import { concurrency } from './concurrency.ts';
import type { PassportConfig } from './config.ts';
import { Issuer } from './issuer.ts';
import { passportCounters } from './metrics.ts';
import { memoryStore, RevocationRegistry, type RevocationStore } from './revocation-registry.ts';
import { routes } from './routes.ts';

export interface PassportInit {
  readonly config: PassportConfig;
  /** The config in force; may change while the service runs. */
  readonly source?: FollowedSource<PassportConfig>;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly onFatal?: (kind: string, error: unknown) => void;
  readonly signal?: AbortSignal;
  /** Default: that of the process. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** The file system below the data directory. Default: the real one. */
  readonly fs?: FileSystem;
}

export interface Passport extends Service, AsyncDisposable {
  readonly ingress: Ingress;
  readonly runtime: ServiceRuntime<typeof concurrency>;
  readonly keys: KeySource;
  readonly registry: RevocationRegistry;
  /** The configuration in force. */
  readonly config: Pick<Watch<PassportConfig>, 'value'>;
}

const VERSION = '0.1.0';

export async function startPassport(init: PassportInit): Promise<Passport> {
  const { config, metrics, log, onFatal, fs = realFileSystem, env = process.env } = init;
  const source = init.source ?? { value: config };
  const signal = init.signal ?? NEVER;
  const dir = config.amnesia.enabled ? undefined : config.data_dir!;
  const runtime = new ServiceRuntime(concurrency, { metrics, log, config: source, ...(onFatal && { onFatal }) });
  const shutdown = runtime.watch('shutdown', false);
  const current = runtime.watch('config', config);
  const follower = new ConfigFollower({
    source,
    config: current,
    shutdown,
    onProblem: (error) => log.error({ err: error }, 'failed to apply the configuration; correct the cause and reload'),
  });
  const news = runtime.watch('revocations', NO_REVOCATIONS);
  const holds = runtime.own('holds', (capacity) => new LongPoll({ capacity, hold_ms: HOLD_MS, watch: news }));
  const auth = await openServiceAuth({
    audience: 'passport',
    config,
    dir,
    env,
    fs,
    log,
    metrics,
    keepsMarks: true,
    signal,
  });
  const { keys } = auth;
  const store = await openStore({ dir, env, fs, log, auth, signal });
  const registry = new RevocationRegistry(store, news);
  if (registry.problem !== undefined) log.error(registry.problem);
  const issuer = new Issuer({ keys, registry, policy: () => current.value.passport });
  const readiness = new Readiness();
  auth.report(readiness);
  readiness.gate('revocations', { kind: 'soft', sample: () => registry.problem });

  const ingress = await createIngress({
    service: 'passport',
    version: VERSION,
    about: () => ({ capability_keys: auth.origin }),
    metrics,
    counters: runtime,
    deadlines: runtime,
    config: ingressConfigOf(config),
    routes: routes({
      issuer,
      registry,
      newerThan: (known, within) => {
        registry.requireNotRolledBack();
        return holds.next(({ version }) => version !== known, within);
      },
      count: passportCounters(metrics, registry),
      log,
    }),
    access: new Checker({ audience: 'passport', keys, epochs: registry }),
    readiness,
    health: () => {
      const { fatal } = runtime.supervisor;
      return fatal === undefined ? { ok: true } : { ok: false, details: { task: fatal.kind } };
    },
    log,
  });

  runtime.spawn('key_refresh', ({ stopping }) => auth.refreshKeys(() => current.value.auth.keys_refresh, stopping));
  runtime.spawn('config_watch', ({ stopping }) => follower.run(stopping));
  await ingress.listen();
  const service = serviceOf({
    ingress,
    runtime,
    drain_ms: () => current.value.drain_deadline,
    log,
    close: async () => {
      await auth.close();
      await store[Symbol.asyncDispose]();
    },
  });
  return {
    ...service,
    drain: () => {
      shutdown.set(true);
      // Held polls would only delay the drain.
      holds.close();
      return service.drain();
    },
    ingress,
    runtime,
    keys,
    registry,
    config: current,
  };
}

interface StoreInit {
  readonly dir: string | undefined;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly fs: FileSystem;
  readonly log: Pick<Log, 'warn'>;
  readonly auth: Pick<ServiceAuth, 'mark' | 'setMark'>;
  readonly signal: AbortSignal;
}

/** The name of the mark that says how new the document was. It lies in another file. */
const MARK = 'revocations';

async function openStore({ dir, env, fs, log, auth, signal }: StoreInit): Promise<RevocationStore & AsyncDisposable> {
  if (dir === undefined) return Object.assign(memoryStore(), { [Symbol.asyncDispose]: () => Promise.resolve() });
  const unlock = await openUnlock({ dir, env, fs, warn: (what) => log.warn(what) });
  const path = join(dir, 'revocations');
  const file = await SealedFile.open({ path, unlock, purpose: 'revocations', initial: NO_REVOCATIONS, fs, signal });
  requireDocument(file.value);
  return {
    get value() {
      return file.value;
    },
    get version_seen() {
      return auth.mark(MARK) ?? 0;
    },
    async update(change, within) {
      await file.update(change, within);
      // It is in force and on disk; without the mark an older copy would not be noticed, which is no reason to deny it.
      const warn = (error: unknown): void => log.warn({ err: error }, 'failed to persist the revocation version');
      await auth.setMark(MARK, file.value.version, within).catch(warn);
    },
    [Symbol.asyncDispose]: () => file.close(),
  };
}
