/**
 * Starts a declared service in this process.
 *
 *     probes are answered --> channels --> open: domain, auth --> listener --> tasks --> listening
 *
 * Contract: the listener answers probes while `open` runs, and takes requests once all tasks have started. When a step
 * fails, the steps before it are undone and the start rejects. The returned service drains, aborts and reloads.
 * Bound: the declaration of the service. Cancellation: `init.signal` aborts a start.
 */
import { Checker, type KeySource } from '@ron/auth';
import { openServiceAuth, type ServiceAuth } from '@ron/auth/service';
import type { Config, KeyTable } from '@ron/config';
import { createIngress, ingressConfigOf, Readiness, StartingListener, type Ingress } from '@ron/ingress';
import { assert, Broadcast, Deadline, NEVER, RonError, type Watch } from '@ron/kernel';
import { realFileSystem } from '@ron/log';
import { isService } from '@ron/proto';
import type { Concurrency } from '../runtime/declaration.ts';
import { ServiceRuntime } from '../runtime/runtime.ts';
import { ConfigFollower } from './config-follower.ts';
import type {
  AuthInit,
  Opened,
  RunningService,
  ServiceDefinition,
  ShellConfig,
  ShellNames,
  StartInit,
} from './define.ts';
import { stopOf } from './stop.ts';

export const VERSION = '0.1.0';
const NAMES: ShellNames = {
  shutdown: 'shutdown',
  config: 'config',
  events: 'events',
  config_watch: 'config_watch',
  key_refresh: 'key_refresh',
  revocation_watch: 'revocation_watch',
  event_log: 'event_log',
};
const KEYS_REFRESH_MS_DEFAULT = 1000;
/** A reload may open directories that were added. */
const RELOAD_MS = 60_000;
/** How long the resources of a failed start may take to close. */
const UNDO_MS = 3000;

export async function startService<K extends KeyTable, D extends Concurrency, E, O, P extends object>(
  definition: ServiceDefinition<K, D, E, O, P>,
  init: StartInit<Config<K>> & Partial<O>,
): Promise<RunningService<Config<K>, D> & P> {
  const config = init.config as Config<K> & ShellConfig;
  const shell = new Shell(definition, init, config);
  const starting = await StartingListener.open(ingressConfigOf(config, init.listener));
  try {
    return await shell.start(starting);
  } catch (error) {
    starting.close();
    await shell.undo();
    throw error;
  }
}

class Shell<K extends KeyTable, D extends Concurrency, E, O, P extends object> {
  readonly #definition: ServiceDefinition<K, D, E, O, P>;
  readonly #init: StartInit<Config<K>> & Partial<O>;
  readonly #config: Config<K> & ShellConfig;
  readonly #names: ShellNames;
  readonly #runtime: ServiceRuntime<D>;
  readonly #current: Watch<Config<K>>;
  readonly #shutdown: Watch<boolean>;
  readonly #events: Broadcast<E>;
  readonly #follower: ConfigFollower<Config<K>>;
  readonly #resources = new AsyncDisposableStack();
  #auth: { readonly service: ServiceAuth; readonly init: AuthInit } | undefined;
  #opened: Opened<Config<K>, D, P> | undefined;
  #ingress: Ingress | undefined;

  constructor(
    definition: ServiceDefinition<K, D, E, O, P>,
    init: StartInit<Config<K>> & Partial<O>,
    config: Config<K> & ShellConfig,
  ) {
    const { metrics, log, onFatal, source = { value: init.config } } = init;
    this.#definition = definition;
    this.#init = init;
    this.#config = config;
    this.#names = { ...NAMES, ...definition.names };
    this.#runtime = new ServiceRuntime(definition.concurrency, {
      metrics,
      log,
      config: source,
      ...(onFatal && { onFatal }),
    });
    this.#shutdown = this.#runtime.watch(this.#names.shutdown as never, false);
    this.#current = this.#runtime.watch(this.#names.config as never, init.config);
    this.#events = this.#eventChannel();
    this.#follower = new ConfigFollower<Config<K>>({
      source,
      config: this.#current,
      shutdown: this.#shutdown,
      apply: async (next, signal) => this.#opened?.applyConfig?.(next, signal),
      onProblem: (error) =>
        log.error({ err: error }, 'failed to apply the configuration; correct the cause and reload'),
    });
  }

  async start(starting: StartingListener): Promise<RunningService<Config<K>, D> & P> {
    const { signal = NEVER } = this.#init;
    const logged = this.#hasTask(this.#names.event_log) ? this.#events.subscribe(this.#names.event_log) : undefined;
    const opened = await this.#open(starting, signal);
    this.#opened = opened;
    const ingress = await this.#createIngress(opened);
    this.#ingress = ingress;
    await opened.beforeStart?.(signal);
    this.#spawnTasks(opened);
    if (logged !== undefined) this.#spawn(this.#names.event_log, (stopping) => this.#logEvents(logged, stopping));
    await ingress.listen(starting);
    return this.#running(ingress, opened, signal);
  }

  /** Ends the parts of a start that failed. */
  async undo(): Promise<void> {
    const warn = (error: unknown): void => this.#init.log.warn({ err: error }, 'failed to close after a failed start');
    await this.#ingress?.close(AbortSignal.abort()).catch(warn);
    await this.#runtime.stop({ drain_ms: 0 });
    this.#runtime.close();
    using due = Deadline.after('close', UNDO_MS);
    await due.within(this.#close()).catch(warn);
  }

  async #open(starting: StartingListener, signal: AbortSignal): Promise<Opened<Config<K>, D, P>> {
    const { metrics, log, fs = realFileSystem, env = process.env } = this.#init;
    return await this.#definition.open({
      config: this.#init.config,
      current: this.#current,
      configProblem: () => this.#follower.problem,
      runtime: this.#runtime,
      log,
      metrics,
      fs,
      env,
      reportOpening: (reason) => (starting.reason = reason),
      signal,
      events: this.#events,
      isStopping: () => this.#shutdown.value,
      resources: this.#resources,
      openAuth: (init) => this.#openAuth(init, signal),
      overrides: this.#init,
    });
  }

  async #openAuth(init: AuthInit, signal: AbortSignal): Promise<ServiceAuth> {
    const { metrics, log, fs, env = process.env } = this.#init;
    const { auth = {}, amnesia = { enabled: false } } = this.#config;
    const { name: audience } = this.#definition;
    assert(isService(audience), `${audience} is a service with capabilities`);
    assert(this.#auth === undefined, 'the capability keys are opened once');
    const service = await openServiceAuth({
      audience,
      config: { auth, amnesia },
      ...init,
      fs,
      env,
      log,
      metrics,
      signal,
    });
    this.#auth = { service, init };
    return service;
  }

  #createIngress(opened: Opened<Config<K>, D, P>): Promise<Ingress> {
    const { metrics, log } = this.#init;
    const { routes, lanes, fast, reasons, cors, charges_late, facts = {} } = opened;
    const auth = this.#auth?.service;
    return createIngress({
      service: this.#definition.name,
      version: VERSION,
      about: () => ({ ...facts, ...(auth && { capability_keys: auth.origin }) }),
      metrics,
      counters: this.#runtime,
      deadlines: this.#runtime,
      config: ingressConfigOf(this.#config, this.#init.listener),
      routes,
      ...(lanes && { lanes }),
      ...(fast && { fast }),
      ...(reasons && { reasons }),
      ...(cors && { cors }),
      ...(charges_late !== undefined && { charges_late }),
      access: opened.access ?? this.#checker(opened),
      readiness: this.#readiness(opened),
      health: () => {
        const { fatal } = this.#runtime.supervisor;
        return fatal === undefined ? { ok: true } : { ok: false, details: { task: fatal.kind } };
      },
      log,
    });
  }

  #checker({ epochs }: Opened<Config<K>, D, P>): Checker {
    const { name: audience } = this.#definition;
    assert(
      this.#auth !== undefined && isService(audience),
      `${audience} opens its capability keys, or gives \`access\``,
    );
    return new Checker({ audience, keys: this.#auth.service.keys, epochs: epochs ?? this.#auth.service.epochs });
  }

  #readiness({ readiness = new Readiness(), gates = {}, facts = {} }: Opened<Config<K>, D, P>): Readiness {
    for (const [name, gate] of Object.entries(gates)) readiness.gate(name, gate);
    for (const [fact, value] of Object.entries(facts)) readiness.tell(fact, () => value);
    this.#auth?.service.report(readiness);
    return readiness;
  }

  #spawnTasks({ tasks }: Opened<Config<K>, D, P>): void {
    for (const [kind, task] of Object.entries(tasks)) this.#runtime.spawn(kind, task as never);
    this.#spawn(this.#names.config_watch, (stopping) => this.#follower.run(stopping));
    if (this.#auth === undefined) return;
    const { service, init } = this.#auth;
    const refresh_ms = (): number => (this.#current.value as ShellConfig).auth?.keys_refresh ?? KEYS_REFRESH_MS_DEFAULT;
    const { onRefreshed } = init;
    this.#spawn(this.#names.key_refresh, (stopping) =>
      service.refreshKeys(refresh_ms, stopping, onRefreshed ? { onRefreshed } : {}),
    );
    const { revocation_watch } = this.#names;
    const isPolling = this.#config.auth?.passport_url !== undefined;
    assert(
      !isPolling || this.#hasTask(revocation_watch),
      `a service with auth.passport_url declares ${revocation_watch}`,
    );
    if (this.#hasTask(revocation_watch))
      this.#spawn(revocation_watch, (stopping) => service.watchRevocations(stopping));
  }

  async #logEvents(logged: ReturnType<Broadcast<E>['subscribe']>, stopping: AbortSignal): Promise<void> {
    for (;;) {
      const event = await logged.recv(stopping);
      if (event === undefined) return;
      const level = this.#definition.eventLevel?.(event) ?? 'info';
      this.#init.log[level](event as object, (event as { kind: string }).kind);
    }
  }

  #running(ingress: Ingress, opened: Opened<Config<K>, D, P>, signal: AbortSignal): RunningService<Config<K>, D> & P {
    const { drain, abort } = stopOf({
      ingress,
      runtime: this.#runtime,
      drain_ms: () => (this.#current.value as ShellConfig).drain_deadline,
      log: this.#init.log,
      begin: () => {
        this.#shutdown.set(true);
        opened.beforeDrain?.();
      },
      afterRequests: opened.afterRequests,
      flush: opened.flush && (() => opened.flush!.run()),
      flush_ms: opened.flush?.deadline_ms,
      close: () => this.#close(),
      close_ms: opened.close_ms,
    });
    const auth = this.#auth?.service;
    return {
      ...opened.parts,
      url: ingress.url,
      ingress,
      runtime: this.#runtime,
      get keys(): KeySource {
        if (auth === undefined) throw new RonError('internal', 'this service opened no capability keys');
        return auth.keys;
      },
      config: this.#current,
      drain,
      abort,
      reload: async () => {
        using due = Deadline.after('reload', RELOAD_MS, { signal });
        try {
          await due.run((within) => this.#follower.reload(within));
        } finally {
          await ingress.reloadTls();
        }
      },
      [Symbol.asyncDispose]: abort,
    };
  }

  /** Closes the keys last: they are small, and a resource that hangs must not keep data from being closed. */
  async #close(): Promise<void> {
    try {
      await this.#resources.disposeAsync();
    } finally {
      await this.#auth?.service.close();
    }
  }

  #eventChannel(): Broadcast<E> {
    const { events } = this.#names;
    if (Object.hasOwn(this.#definition.concurrency.channels, events))
      return this.#runtime.broadcast<E>(events as never);
    return new Broadcast<E>(events, 1);
  }

  #hasTask(name: string): boolean {
    return Object.hasOwn(this.#definition.concurrency.tasks, name);
  }

  #spawn(name: string, run: (stopping: AbortSignal) => Promise<void>): void {
    this.#runtime.spawn(name, ({ stopping }) => run(stopping));
  }
}
