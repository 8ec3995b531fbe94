/**
 * A service as a process: configuration, signals, and an exit code that states the cause.
 *
 * Contract: the service starts only if the whole configuration is valid. SIGTERM or SIGINT drains, a second signal aborts.
 * SIGHUP reloads the configuration; an invalid one changes nothing. A critical task that stays down drains the service and
 * ends the process. An unhandled error ends it at once, because the state is unknown.
 * Bound: a drain that does not end within `stop_ms_max` is aborted; an abort that does not end within a second is abandoned.
 * A process whose file calls or threads do not end after that is killed (SIGKILL).
 * Overflow: signals after the second are ignored. Under a supervisor (`SUPERVISED`) every signal after the first is: a
 * service manager may signal the whole node while its supervisor drains it in order. SIGQUIT aborts in any case.
 * Cancellation: `context.signal` aborts a start in progress.
 * Secrets in the environment are removed from `process.env` before the start. From the ready line on, at the latest after
 * `PROTECT_MS_MAX`, other processes of the user cannot read the memory (`protectProcess`); SIGUSR1 opens no debugger.
 */
import {
  ConfigSource,
  type ReloadResult,
  renderConfigDocs,
  formatProblem,
  key,
  ConfigError,
  configValue,
  type Config,
  type ConfigSchema,
  type KeyTable,
} from '@ron/config';
import { exitWith, NODE_MAJOR_MIN, type Exit } from './exit-codes.ts';
import {
  LogSink,
  standardErrorSink,
  createLog,
  LOG_LEVELS,
  type Log,
  collectProcessMetrics,
  Metrics,
} from '@ron/telemetry';
import type { Counter } from '@ron/telemetry';
import { endingThreads, sched } from '@ron/kernel';
import { takeEnvironment } from '@ron/proto';
import { protectProcess } from './protect-process.ts';

/** Keys that every service has; spread them into its table. */
export const PROCESS_KEYS = {
  'log.level': key.oneOf(LOG_LEVELS, { default: 'info', doc: 'The lowest level that is logged.', reloadable: true }),
  drain_deadline: key.duration({
    default: '3s',
    min: '1s',
    max: '5s',
    doc: 'Time for work in progress to finish after a stop request; the rest is aborted and counted.',
    reloadable: true,
  }),
} as const;

/** The result of `start`. */
export interface Service {
  /** Where it listens; reported to the process that started it. */
  readonly url: string;
  /** Takes no new work, finishes work in progress within its deadline, aborts the rest, and closes everything. */
  drain(): Promise<void>;
  /** Ends everything now. May be called during a drain. */
  abort(): Promise<void>;
  /** Called after each successful reload, for files outside the configuration: certificates, packs. */
  reload?(): Promise<void>;
}

type Environment = Readonly<Record<string, string | undefined>>;

export interface ProcessContext<K extends KeyTable> {
  readonly config: Config<K>;
  /** The environment of the process, with the secrets that `process.env` no longer has. */
  readonly env: Environment;
  /** The config in force and its watch. */
  readonly source: ConfigSource<K>;
  readonly log: Log;
  readonly metrics: Metrics;
  /** Aborted when a stop is requested before `start` has ended. */
  readonly signal: AbortSignal;
  /** Called when a critical task stays down. */
  readonly onFatal: (kind: string, error: unknown) => void;
}

export interface ProcessInit<K extends KeyTable> {
  /** Names the logs and the environment variables: `storage` reads `RON_STORAGE_*`. */
  name: string;
  schema: ConfigSchema<K>;
  start(context: ProcessContext<K>): Promise<Service>;
  /** Limit of a drain in total, even if the service's own deadline is longer. Default 15 000. */
  stop_ms_max?: number;
  /** Default `process.argv.slice(2)`. */
  argv?: readonly string[];
  /** Default `process.env`. */
  env?: Environment;
  /** For tests. Default the running one. */
  node_version?: string;
}

/** Set by `ron up` for its services. */
export const SUPERVISED = 'RON_SUPERVISED';

const STOP_MS_MAX = 15_000;
/** Time for file calls and threads to end before the exit. */
const CALLS_MS_MAX = 1000;
const POLL_MS = 10;
const ABORT_MS_MAX = 1000;
/** A start may wait for a token or a disk. */
const PROTECT_MS_MAX = 1000;

/** Runs until a stop is requested. Never returns normally: the process exits. */
export async function runProcess<const K extends KeyTable>(init: ProcessInit<K>): Promise<void> {
  const node_version = init.node_version ?? process.versions.node;
  if (Number.parseInt(node_version, 10) < NODE_MAJOR_MIN) {
    exitWith('node', oldNode(node_version));
  }
  const env = init.env ?? takeEnvironment(process.env);
  await new Runner(init, env, await openConfig(init, env)).run();
}

function oldNode(version: string): string {
  return (
    `ron needs Node ${NODE_MAJOR_MIN}, this is ${version}. The project brings it as the npm package "node":\n` +
    'run `npm install` in the project folder, then start through an npm script or with node_modules/.bin/node.\n'
  );
}

async function openConfig<const K extends KeyTable>(init: ProcessInit<K>, all: Environment): Promise<ConfigSource<K>> {
  const env_prefix = `RON_${init.name.toUpperCase()}_`;
  const env = { ...all };
  const args = [...(init.argv ?? process.argv.slice(2))];
  if (args.includes('--help')) {
    const out = new LogSink({ fd: 1 });
    out.write(help(init, env_prefix));
    out.flushSync();
    exitWith('ok');
  }
  // These two locate the configuration, so they are not part of it.
  const fallback = {
    path: takeVariable(env, `${env_prefix}CONFIG`),
    table: takeVariable(env, `${env_prefix}CONFIG_TABLE`),
  };
  const path = takeFlag(args, '--config') ?? fallback.path;
  const table = takeFlag(args, '--config-table') ?? fallback.table;
  // A mistake here must not start the service with defaults only.
  if (path === '' || table === '' || (table !== undefined && path === undefined)) {
    const expected =
      path === undefined ? '--config FILE beside --config-table' : 'a value after --config and --config-table';
    return exitWith('config', `${init.name} did not start: expected ${expected}\n`);
  }
  try {
    const file = path === undefined ? undefined : { path, table };
    return await ConfigSource.open({ schema: init.schema, flags: args, env, env_prefix, file });
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return exitWith('config', `${init.name} did not start: ${error.message}\n`);
  }
}

function help<K extends KeyTable>(init: ProcessInit<K>, env_prefix: string): string {
  return (
    `${init.name}: every key below can be given as --key=value, as an environment variable, or in a TOML file.\n` +
    `  --config FILE        the TOML file (or ${env_prefix}CONFIG)\n` +
    `  --config-table NAME  read only this table of it (or ${env_prefix}CONFIG_TABLE)\n\n` +
    `${renderConfigDocs(init.schema, env_prefix)}\n`
  );
}

/** Removes `--name value` or `--name=value` and returns the value; '' if there is none. */
function takeFlag(args: string[], name: string): string | undefined {
  const index = args.findIndex((arg) => arg === name || arg.startsWith(`${name}=`));
  if (index < 0) return undefined;
  const [flag = ''] = args.splice(index, 1);
  return flag === name ? (args.splice(index, 1)[0] ?? '') : flag.slice(name.length + 1);
}

function takeVariable(env: Record<string, string | undefined>, name: string): string | undefined {
  const value = env[name];
  delete env[name];
  return value;
}

/** Keeps the process alive until a stop is requested, even if the start waits only on timers that do not. */
function stayAlive(): void {
  sched.timer(Infinity, stayAlive, 'process.alive', { keepAlive: true });
}

class Runner<K extends KeyTable> {
  readonly #init: ProcessInit<K>;
  readonly #env: Environment;
  readonly #source: ConfigSource<K>;
  readonly #log: Log;
  readonly #metrics: Metrics;
  readonly #reloads: Counter<'result'>;
  readonly #starting = new AbortController();
  /** Woken once, with the cause of the stop. */
  readonly #stop = sched.park<'signal' | 'fatal'>('process.stop');
  #service: Service | undefined;
  /** The cause of the stop, once one is requested. */
  #why: 'signal' | 'fatal' | undefined;
  #signals = 0;
  #isProtected = false;
  /** The drain has ended; only the exit is left. */
  #isStopped = false;
  /** Set by an abort, so that the drain that it cuts short does not exit with success. */
  #aborted: Exit | undefined;

  constructor(init: ProcessInit<K>, env: Environment, source: ConfigSource<K>) {
    this.#init = init;
    this.#env = env;
    this.#source = source;
    this.#log = createLog({ service: init.name });
    this.#metrics = new Metrics(init.name);
    this.#reloads = measureProcess(this.#metrics);
  }

  async run(): Promise<void> {
    this.#applyLogLevel();
    // Before the start: a signal during the start must not kill a half-started service.
    this.#listen();
    stayAlive();
    this.#log.info('starting');
    const late = sched.timer(PROTECT_MS_MAX, () => this.#protect(), 'process.protect');
    const service = await this.#start();
    this.#service = service;
    late.cancel();
    if (this.#why === undefined) {
      const out = new LogSink({ fd: 1 });
      out.write(`${JSON.stringify({ event: 'ready', service: this.#init.name, url: service.url })}\n`);
      out.flushSync();
      this.#log.info({ url: service.url }, 'ready');
    }
    this.#protect();
    const why = await this.#stop.promise;
    await this.#drain(service, why);
  }

  /** After the ready line, because it would delay the start. */
  #protect(): void {
    if (this.#isProtected) return;
    this.#isProtected = true;
    const problem = protectProcess();
    if (problem !== undefined) this.#log.warn(`other processes of this user can read the memory: ${problem}`);
  }

  #listen(): void {
    // Without a handler, Node opens a debugger port.
    process.on('SIGUSR1', () => this.#log.warn('SIGUSR1 ignored: the debugger is disabled'));
    process.on('SIGTERM', () => this.#onSignal('terminated'));
    process.on('SIGINT', () => this.#onSignal('interrupted'));
    process.on('SIGQUIT', () => this.#onQuit());
    process.on('SIGHUP', () => void this.#reload());
    process.on('uncaughtException', (error, origin) => {
      this.#log.fatal({ err: error, origin }, 'unhandled error');
      void this.#exit('fatal');
    });
  }

  async #start(): Promise<Service> {
    try {
      return await this.#init.start({
        config: this.#source.value,
        env: this.#env,
        source: this.#source,
        log: this.#log,
        metrics: this.#metrics,
        signal: this.#starting.signal,
        onFatal: (kind, error) => this.#onFatal(kind, error),
      });
    } catch (error) {
      if (this.#why === 'signal') this.#log.info('stopped before the start was complete');
      else this.#log.fatal({ err: error }, 'failed to start');
      return await this.#exit(this.#why === undefined ? 'start' : this.#why === 'signal' ? 'ok' : 'fatal');
    }
  }

  #onSignal(second: 'terminated' | 'interrupted'): void {
    if (this.#isStopped) return;
    this.#signals += 1;
    if (this.#signals === 1) {
      this.#log.info('stop requested: draining');
      this.#beginStop('signal');
    } else if (this.#signals === 2 && process.env[SUPERVISED] === undefined) {
      this.#log.warn('stop requested again: aborting');
      void this.#abort(second);
    }
  }

  #onQuit(): void {
    if (this.#isStopped || this.#aborted !== undefined) return;
    this.#log.warn('abort requested');
    this.#beginStop('signal');
    void this.#abort('terminated');
  }

  #onFatal(kind: string, error: unknown): void {
    this.#log.fatal({ kind, err: error }, 'a critical task stays down: draining');
    this.#beginStop('fatal');
  }

  #beginStop(why: 'signal' | 'fatal'): void {
    this.#why ??= why;
    this.#starting.abort(new Error('a stop was requested'));
    this.#stop.wake(this.#why);
  }

  async #drain(service: Service, why: 'signal' | 'fatal'): Promise<void> {
    const stop_ms_max = this.#init.stop_ms_max ?? STOP_MS_MAX;
    const timer = sched.timer(
      stop_ms_max,
      () => {
        this.#log.fatal({ stop_ms_max }, 'the drain did not end in time: aborting');
        void this.#abort('fatal');
      },
      'process.drain',
      { keepAlive: true },
    );
    try {
      await service.drain();
      this.#isStopped = true;
      timer.cancel();
      this.#log.info('stopped');
      await this.#exit(why === 'signal' ? 'ok' : 'fatal');
    } catch (error) {
      timer.cancel();
      this.#log.fatal({ err: error }, 'the drain failed');
      await this.#exit('fatal');
    }
  }

  /** Aborts the service. An abort that does not end in time is abandoned. */
  async #abort(exit: Exit): Promise<void> {
    this.#aborted ??= exit;
    sched.timer(ABORT_MS_MAX, () => void this.#exit(exit), 'process.abort', { keepAlive: true });
    try {
      await this.#service?.abort();
    } catch (error) {
      this.#log.error({ err: error }, 'the abort failed');
    }
    await this.#exit(exit);
  }

  async #reload(): Promise<void> {
    try {
      const result = await this.#source.reload();
      if (result.ok) {
        this.#applyLogLevel();
        await this.#service?.reload?.();
      }
      this.#reported(result);
    } catch (error) {
      this.#reloads.at('failed').inc();
      this.#log.error({ err: error }, 'reload failed');
    }
  }

  #reported(result: ReloadResult): void {
    this.#reloads.at(result.ok ? 'ok' : 'refused').inc();
    if (result.ok) this.#log.info({ changed: result.changed }, 'configuration reloaded');
    else
      this.#log.warn(
        { problems: result.problems.map(formatProblem) },
        'configuration refused; the previous one stays in force',
      );
  }

  #applyLogLevel(): void {
    const level = configValue(this.#source.value, 'log.level');
    if (typeof level === 'string') this.#log.level = level;
  }

  /** Node waits for file calls and threads, even for those that never end; such a process is killed. */
  async #exit(exit: Exit): Promise<never> {
    this.#source.close();
    const begun_ms = sched.now_ms();
    while (hasCalls() && sched.now_ms() - begun_ms < CALLS_MS_MAX) {
      await new Promise<void>((resolve) => void sched.timer(POLL_MS, resolve, 'process.exit', { keepAlive: true }));
    }
    if (hasCalls()) {
      this.#log.fatal('a file call or a thread does not end: killing the process');
      process.kill(process.pid, 'SIGKILL');
    }
    return exitWith(this.#aborted ?? exit);
  }
}

const hasCalls = (): boolean =>
  endingThreads() > 0 || process.getActiveResourcesInfo().some((name) => name.startsWith('FSReq'));

/** The metrics of every process; returns the counter of reloads. */
export function measureProcess(metrics: Metrics): Counter<'result'> {
  collectProcessMetrics(metrics);
  metrics.counterFrom(
    'log_dropped_total',
    'Log lines that were lost because the reader was too slow or had closed the pipe.',
    [],
    () => [{ labels: {}, value: standardErrorSink().dropped_total }],
  );
  return metrics.counter('config_reloads_total', 'Reloads by result.', { result: ['ok', 'refused', 'failed'] });
}
