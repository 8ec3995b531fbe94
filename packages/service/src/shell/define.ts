/**
 * The declaration of a service: its name, configuration and concurrency, and the function that opens its domain.
 *
 *     export const notes = defineService({
 *       name: 'notes',
 *       config: schema,
 *       concurrency,
 *       async open({ config, runtime, openAuth, resources }) {
 *         await openAuth({ dir: config.data_dir });
 *         const store = resources.use(await Store.open(config.data_dir));
 *         const work = runtime.workQueue('work');
 *         return {
 *           routes: routes(store),
 *           lanes: { get: work },
 *           gates: { store: { kind: 'hard', sample: () => store.problem } },
 *           tasks: { pool: (task) => work.serve(task) },
 *           parts: { store },
 *         };
 *       },
 *     });
 */
import type { KeySource, RevocationEpochs } from '@ron/auth';
import type { AuthConfig, ServiceAuth, ServiceAuthInit } from '@ron/auth/service';
import type { Config, ConfigSchema, KeyTable } from '@ron/config';
import type { AnyIngressKeyConfig, GateInit, Ingress, IngressConfig, IngressInit, Route } from '@ron/ingress';
import type { Broadcast, TaskContext, Watch } from '@ron/kernel';
import type { FileSystem } from '@ron/log';
import type { AccessCheck } from '@ron/proto';
import type { Log, Metrics } from '@ron/telemetry';
import type { Service } from '../process/process.ts';
import type { Concurrency } from '../runtime/declaration.ts';
import type { NameIn } from '../runtime/runtime-names.ts';
import type { ServiceRuntime } from '../runtime/runtime.ts';
import type { FollowedSource } from './config-follower.ts';

/** The configuration keys that the shell reads. */
export type ShellConfig = AnyIngressKeyConfig & {
  readonly drain_deadline: number;
  readonly auth?: Partial<AuthConfig>;
  readonly amnesia?: { readonly enabled: boolean };
};

export type Environment = Readonly<Record<string, string | undefined>>;
export type EventLevel = 'debug' | 'info' | 'warn' | 'error';

/** The declared names of the channels and tasks that the shell builds, where the service's specification (its seed) uses other names. */
export interface ShellNames {
  readonly shutdown: string;
  readonly config: string;
  readonly events: string;
  readonly config_watch: string;
  readonly key_refresh: string;
  readonly revocation_watch: string;
  readonly event_log: string;
}

/** Everything that `open` receives. */
export interface OpenContext<C, D extends Concurrency, E, O> {
  /** The configuration at the start. */
  readonly config: C;
  /** The configuration in force. */
  readonly current: Pick<Watch<C>, 'value'>;
  /** Why a newer configuration is not in force; undefined if the newest one is. */
  readonly configProblem: () => string | undefined;
  readonly runtime: ServiceRuntime<D>;
  readonly log: Log;
  readonly metrics: Metrics;
  /** The file system below the data directory. */
  readonly fs: FileSystem;
  readonly env: Environment;
  /** States why the service is not ready yet, such as the progress of a replay: probes show it while `open` runs. */
  readonly reportOpening: (reason: string) => void;
  /** Aborted when a stop is requested before the start has ended. */
  readonly signal: AbortSignal;
  /** Publishes a domain event; the shell logs it. */
  readonly events: Broadcast<E>;
  /** True once a drain has begun. */
  readonly isStopping: () => boolean;
  /** Closes its resources in reverse order after the tasks have ended, or at once when the start fails. */
  readonly resources: AsyncDisposableStack;
  /** Opens the keys and revocations that capabilities are checked with. The shell refreshes, reports and closes them. */
  readonly openAuth: (init: AuthInit) => Promise<ServiceAuth>;
  /** Replacements for parts of the domain, given by the program that starts the service. */
  readonly overrides: Partial<O>;
}

export type AuthInit = Pick<ServiceAuthInit, 'dir' | 'deriver' | 'unlock' | 'keepsMarks'> & {
  /** Called after each refresh of the keys. */
  readonly onRefreshed?: () => Promise<void>;
};

type Listening = Partial<Pick<IngressInit, 'lanes' | 'fast' | 'reasons' | 'readiness' | 'cors' | 'charges_late'>>;

/** Everything that `open` returns. */
export interface Opened<C, D extends Concurrency, P> extends Listening {
  readonly routes: readonly Route[];
  /** The gates of `/readyz`, besides those of the capability keys. */
  readonly gates?: Readonly<Record<string, GateInit>>;
  /** Facts that `/readyz` and `/version` state. */
  readonly facts?: Readonly<Record<string, string>>;
  readonly tasks: { readonly [T in NameIn<D['tasks']>]?: (task: TaskContext) => Promise<void> };
  /** Checks capabilities. Default: by the keys of `openAuth`. */
  readonly access?: AccessCheck;
  /** The revocations in force. Default: those that passport publishes. */
  readonly epochs?: RevocationEpochs;
  /** Applies a reloaded configuration beyond `current`. */
  readonly applyConfig?: (config: C, signal: AbortSignal) => Promise<void>;
  /** Called before the tasks start and the listener listens. */
  readonly beforeStart?: (signal: AbortSignal) => Promise<void>;
  /** Called when a drain begins, before the listener refuses work. */
  readonly beforeDrain?: () => void;
  /** Called during a drain once the accepted requests are answered, before the tasks stop. */
  readonly afterRequests?: () => void;
  /** Persists last results once the tasks have ended, within `deadline_ms`. */
  readonly flush?: { readonly deadline_ms: number; run(): Promise<void> };
  /** How long the resources may take to close. Default 3000; a process gives a stop 15 s in all. */
  readonly close_ms?: number;
  /** Parts that the running service exposes to the program that started it. */
  readonly parts: P;
}

export interface ServiceDefinition<K extends KeyTable, D extends Concurrency, E, O, P> {
  readonly name: string;
  readonly config: ConfigSchema<K>;
  readonly concurrency: D;
  readonly names?: Partial<ShellNames>;
  /** The log level of each event. Default `info`. */
  readonly eventLevel?: (event: E) => EventLevel;
  open(context: OpenContext<Config<K>, D, E, O>): Promise<Opened<Config<K>, D, P>>;
}

/** Declares a service. `startService` runs it in this process, `runService` as a process of its own. */
export function defineService<const K extends KeyTable, const D extends Concurrency, P, E = never, O = object>(
  definition: ServiceDefinition<K, D, E, O, P>,
): ServiceDefinition<K, D, E, O, P> {
  return definition;
}

export interface StartInit<C> {
  readonly config: C;
  /** The configuration in force; may change while the service runs. Default: `config`, which then never changes. */
  readonly source?: FollowedSource<C> | undefined;
  readonly metrics: Metrics;
  readonly log: Log;
  /** Called when a critical task stays down. */
  readonly onFatal?: ((kind: string, error: unknown) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Default: the environment of the process. */
  readonly env?: Environment | undefined;
  /** Default: the real file system. */
  readonly fs?: FileSystem | undefined;
  /** Listener limits that tests set without configuration keys. */
  readonly listener?: Partial<IngressConfig> | undefined;
}

export interface RunningService<C, D extends Concurrency> extends Service, AsyncDisposable {
  readonly ingress: Ingress;
  readonly runtime: ServiceRuntime<D>;
  readonly keys: KeySource;
  /** The configuration in force. */
  readonly config: Pick<Watch<C>, 'value'>;
}
