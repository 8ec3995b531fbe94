/**
 * The services of one node, as supervised child processes.
 *
 * Contract: a service that crashes is restarted after 100 ms to 5 s. If one crashes more than five times in a minute, the
 * node stops. If one fails its first start, the start fails with the last lines of its log. A service that the others can
 * run without (`canWaitFor`) is restarted indefinitely instead, unless its configuration is refused. Callees are spawned before
 * their callers, without waiting for each other. The TCP port of a service is kept while it restarts. `stop` drains in
 * rounds: a service is stopped once its callers are gone. `abort` stops all services at once.
 * Bound: a service has `STOP_MS_MAX` to drain, then it is killed. Cancellation: `stop` and `abort`, both idempotent.
 */
import { Supervisor, sched, type SupervisorEvent } from '@ron/kernel';
import type { Service } from '@ron/proto';
import { HeldPort } from './held-port.ts';
import type { Environment } from './environment.ts';
import { LogFile } from './log-file.ts';
import type { Planned } from './plan.ts';
import { describeExit, LISTEN_FD, ServiceChild, StartError } from './service-child.ts';
import { drainRounds, startOrder } from './table/call-graph.ts';
import { portOf, type ServiceEntry } from './table/service-entry.ts';
import { messageOf } from '../exits.ts';
import type { Home } from '../home.ts';

/** Longer than a drain: a service aborts its own after 15 s. */
const STOP_MS_MAX = 20_000;
const ABORT_MS = 1500;
/** Exit code of a service whose configuration was refused. */
export const EXIT_CONFIG = 78;
const BIND = '--server.bind=';

export interface NodeEvents {
  onReady(name: Service, url: string, pid: number, isFirst: boolean, took_ms: number): void;
  /** The service will be restarted in `restart_ms`. */
  onCrash(name: Service, why: string, restart_ms: number): void;
  onDraining(names: readonly Service[]): void;
  /** The first start failed; the service is restarted until it succeeds. */
  onLate?(name: Service, error: unknown, tail: string): void;
}

export interface NodeInit extends NodeEvents {
  /** Called each time a service begins to listen. If the first call rejects, the start fails. */
  onListening?: (name: Service, isFirst: boolean) => Promise<void>;
  services: readonly Planned[];
  /** Whether the other services can run until this one starts. Default: no. */
  canWaitFor?: (name: Service) => boolean;
  home: Home;
  /** Whether service logs go to files. */
  keepLogs: boolean;
  environmentOf: (entry: ServiceEntry) => Environment;
}

/** The cause for which the node stopped. */
export interface Failure {
  readonly name: Service;
  readonly error: unknown;
  /** The last lines of its log. */
  readonly tail: string;
  readonly isStart: boolean;
}

interface Running {
  planned: Planned;
  /** It stops for a new configuration. */
  isReplaced: boolean;
  readonly log: LogFile;
  child: ServiceChild | undefined;
  /** Its port, until it has stopped. */
  held: HeldPort | undefined;
  /** Set by the first ready line; a restarted service listens at the same URL. */
  url: string | undefined;
  /** It was ready once, and `onReady` was called. */
  isReady: boolean;
  /** Its first start failed, and the others run without it. */
  isLate: boolean;
}

export class Node {
  readonly #init: NodeInit;
  readonly #running: readonly Running[];
  /** Callers before callees. */
  readonly #rounds: readonly (readonly Running[])[];
  readonly #supervisor: Supervisor;
  readonly #failed = Promise.withResolvers<Failure>();
  readonly #ready = Promise.withResolvers<void>();
  #stopping: Promise<void> | undefined;
  #aborted = false;

  constructor(init: NodeInit) {
    this.#init = init;
    this.#running = init.services.map((planned) => ({
      planned,
      isReplaced: false,
      log: new LogFile({ path: init.keepLogs ? init.home.of(planned.entry.name).log : undefined }),
      child: undefined,
      held: undefined,
      url: undefined,
      isReady: false,
      isLate: false,
    }));
    const rounds = drainRounds(init.services.map(({ entry }) => entry));
    this.#rounds = rounds.map((names) => names.map((name) => this.#byName(name)));
    this.#supervisor = new Supervisor({
      onFatal: (kind, error) => this.#fail(this.#byName(kind), error, false),
      log: (event) => this.#onSupervisorEvent(event),
    });
  }

  /** Resolves when a service failed for good; never rejects. */
  get failed(): Promise<Failure> {
    return this.#failed.promise;
  }

  get urls(): Partial<Record<Service, string>> {
    return Object.fromEntries(this.#running.map(({ planned, url }) => [planned.entry.name, url]));
  }

  get pids(): Partial<Record<Service, number>> {
    return Object.fromEntries(this.#running.map(({ planned, child }) => [planned.entry.name, child?.pid]));
  }

  /**
   * Starts all services; resolves when all are ready. A failure resolves `failed` instead. Throws if a port is in use,
   * before any service is started.
   */
  async start(): Promise<void> {
    for (const running of this.#running) running.held = heldPort(running.planned.flags);
    for (const name of startOrder(this.#init.services.map(({ entry }) => entry))) {
      const running = this.#byName(name);
      const restarts = this.#init.canWaitFor?.(name) === true ? { restarts_max: Infinity } : {};
      this.#supervisor.spawn(name, { criticality: 'critical', ...restarts }, () => this.#run(running));
    }
    await this.#ready.promise;
  }

  forward(signal: NodeJS.Signals): void {
    // A service that starts reads the configuration anyway, and may have no handler for the signal yet.
    for (const { child, isReady } of this.#running) if (isReady) child?.signal(signal);
  }

  /** Restarts the services whose flags have changed, if their rows allow it. */
  follow(services: readonly Planned[]): void {
    for (const planned of services) {
      const running = this.#byName(planned.entry.name);
      const isSame = planned.flags.join('\n') === running.planned.flags.join('\n');
      if (isSame || planned.entry.restarts_on_reload !== true || this.#stopping !== undefined) continue;
      running.planned = planned;
      running.isReplaced = true;
      running.child?.terminate();
    }
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  /** Makes draining services abort, and kills those that still run after `ABORT_MS`. */
  abort(): void {
    if (this.#aborted) return;
    this.#aborted = true;
    void this.stop();
    for (const { child } of this.#running) child?.abort();
    sched.timer(ABORT_MS, () => this.#killAll(), 'node.abort', { keepAlive: true });
  }

  /** One run of a service. Every exit before the node stops is a crash. */
  async #run(running: Running): Promise<void> {
    const { entry } = running.planned;
    const began_ms = sched.now_ms();
    const isFirst = running.url === undefined && !running.isLate;
    let child: ServiceChild;
    try {
      child = this.#spawn(running);
      running.child = child;
      running.url = await child.ready;
    } catch (error) {
      if (isFirst && this.#stopping === undefined) this.#startFailed(running, error);
      throw error;
    }
    await this.#listening(running, isFirst);
    this.#init.onReady(entry.name, running.url, child.pid!, isFirst, sched.now_ms() - began_ms);
    running.isReady = true;
    this.#checkReady();
    const exit = await child.exited;
    if (this.#stopping === undefined) throw new Error(describeExit(exit));
  }

  #spawn(running: Running): ServiceChild {
    const { entry, flags } = running.planned;
    const { held, log } = running;
    return new ServiceChild({
      name: entry.name,
      main: entry.main,
      flags: this.#withChosenPorts(held === undefined ? flags : withPort(flags, held)),
      env: this.#init.environmentOf(entry),
      log,
      listen_fd: held?.fd,
    });
  }

  /** Replaces `portOf` by the ports that were chosen. */
  #withChosenPorts(flags: readonly string[]): string[] {
    const chosen = this.#running.map(({ planned, held }) => [portOf(planned.entry.name), held?.port] as const);
    return flags.map((flag) => chosen.reduce((text, [mark, port]) => text.replace(mark, String(port ?? 0)), flag));
  }

  async #listening(running: Running, isFirst: boolean): Promise<void> {
    try {
      await this.#init.onListening?.(running.planned.entry.name, isFirst);
    } catch (error) {
      if (!isFirst || this.#stopping !== undefined) return;
      this.#fail(running, error, true);
      throw error;
    }
  }

  #startFailed(running: Running, error: unknown): void {
    const { name } = running.planned.entry;
    const isRefused = error instanceof StartError && error.exit.code === EXIT_CONFIG;
    if (isRefused || this.#init.canWaitFor?.(name) !== true) return this.#fail(running, error, true);
    running.isLate = true;
    this.#init.onLate?.(name, error, running.log.tail);
    this.#checkReady();
  }

  #checkReady(): void {
    if (this.#running.every(({ isReady, isLate }) => isReady || isLate)) this.#ready.resolve();
  }

  #fail(running: Running, error: unknown, isStart: boolean): void {
    this.#failed.resolve({ name: running.planned.entry.name, error, tail: running.log.tail, isStart });
    // A failed service must not be restarted while the others drain.
    void this.stop();
  }

  #onSupervisorEvent(event: SupervisorEvent): void {
    if (event.event !== 'crashed' || event.restart_ms === undefined || this.#stopping !== undefined) return;
    const running = this.#byName(event.kind);
    const { planned, isLate, isReady, isReplaced } = running;
    const { name } = planned.entry;
    // Its failure was reported once.
    if (isLate && !isReady) return;
    const { error } = event;
    const died = error instanceof StartError ? describeExit(error.exit) : messageOf(error);
    const why = isReplaced ? 'has a new configuration' : died;
    running.isReplaced = false;
    this.#init.onCrash(name, why, event.restart_ms);
  }

  #byName(name: string): Running {
    return this.#running.find(({ planned }) => planned.entry.name === name)!;
  }

  async #stop(): Promise<void> {
    const stopped = this.#supervisor.stop({ drain_ms: 10 * STOP_MS_MAX });
    for (const round of this.#rounds) {
      const live = round.filter(({ child }) => child !== undefined && !child.isGone);
      if (live.length === 0) continue;
      this.#init.onDraining(live.map(({ planned }) => planned.entry.name));
      await Promise.all(live.map(({ child }) => drain(child!)));
      for (const running of live) releasePort(running);
    }
    await stopped;
    for (const running of this.#running) releasePort(running);
    for (const { log } of this.#running) log[Symbol.dispose]();
  }

  #killAll(): void {
    for (const { child } of this.#running) child?.kill();
  }
}

/** The port of the service, if its address is one of the flags. */
function heldPort(flags: readonly string[]): HeldPort | undefined {
  const bind = flags.find((flag) => flag.startsWith(BIND))?.slice(BIND.length);
  return bind === undefined ? undefined : HeldPort.bind(bind);
}

function withPort(flags: readonly string[], held: HeldPort): string[] {
  const others = flags.filter((flag) => !flag.startsWith(BIND));
  return [...others, `${BIND}${held.bind}`, `--server.listen_fd=${LISTEN_FD}`];
}

function releasePort(running: Running): void {
  running.held?.[Symbol.dispose]();
  running.held = undefined;
}

async function drain(child: ServiceChild): Promise<void> {
  child.terminate();
  const late = sched.timer(STOP_MS_MAX, () => child.kill(), 'service.drain', { keepAlive: true });
  await child.exited;
  late.cancel();
}

export { StartError };
