/**
 * `ron up` from its flags to its exit code.
 */
import { existsSync } from 'node:fs';
import { Deadline, sched, sleep } from '@ron/kernel';
import { BASE_PORT_DEFAULT, takeEnvironment, type Service } from '@ron/proto';
import type { Values } from '../command.ts';
import { withCompileCache } from '../compile-cache.ts';
import { CliError, exitOf, messageOf, systemCode, type Exit } from '../exits.ts';
import { humanDuration } from '../format.ts';
import { homeOf, inAmnesia, shownPath, socketUrl, type Home, type NodeState } from '../home.ts';
import { requestedNetwork, type NETWORK_OPTIONS } from '../net/up-options.ts';
import type { Io } from '../io.ts';
import { readinessOf } from '../readiness.ts';
import { compileAhead } from './compile-ahead.ts';
import { NodeCapabilities } from './capabilities/node-capabilities.ts';
import { lockHome, type LockedHome } from './directory.ts';
import { environmentOf, holdsSecrets, withoutSecrets } from './environment.ts';
import { EXIT_CONFIG, Node, type Failure } from './node.ts';
import { parsePort, plan, type PLAN_OPTIONS, type Planned } from './plan.ts';
import { StartError } from './service-child.ts';
import { startOrder } from './table/call-graph.ts';
import type { ServiceEntry } from './table/service-entry.ts';
import { waitForOrphans } from './orphans.ts';

/** One Ctrl-C may arrive twice, from the terminal and from npm; a second key press takes longer than this. */
const SAME_SIGNAL_MS = 300;
/** Short enough that capabilities are minted with a new key before the old one is retired. */
const RENEW_EVERY_MS = 60_000;
const ROOT_POLL_MS = 1000;
/** A service that is still degraded after this many probes is reported. */
const PROBES_MAX = 8;
const PROBE_EVERY_MS = 250;

/** The flags of `ron up`. */
export type UpOptions = typeof PLAN_OPTIONS & typeof NETWORK_OPTIONS;

export async function runUp(values: Values<UpOptions>, io: Io, table: readonly ServiceEntry[]): Promise<Exit> {
  const stop = new StopSignals(io);
  const own_env = takeEnvironment(io.env);
  const base_port = parsePort(values['base-port'], BASE_PORT_DEFAULT);
  const amnesia = values.amnesia === true;
  const degraded = values.degraded === true;
  const planAt = (home: Home): Promise<Planned[]> =>
    plan({ ...values, place: { home, base_port, amnesia, degraded }, table, env: own_env });
  const network = await requestedNetwork(values);
  // Usage errors are found before any file is created. The directory itself may change below (--amnesia).
  const asked = homeOf(values, io);
  await planAt(amnesia ? inAmnesia(asked) : asked);
  await using locked = await lockHome(values, io, stop.signal);
  const { home } = locked;
  await network.apply(home, io);
  const services = await planAt(home);
  const waitNote = (name: string, pid: number): void =>
    io.note(`waiting for ${name} of an earlier run to exit (pid ${pid})`);
  await waitForOrphans(home, table, waitNote, stop.signal);
  const started = new Date(sched.wall_ms()).toISOString();
  const facts = { pid: process.pid, started, ...(amnesia && { amnesia }) };
  await locked.writeState({ ...facts, services: {}, pids: {} });
  const capabilities = new NodeCapabilities(home, services, table, io);
  await capabilities.prepare(stop.signal);
  const env = withOneMallocArena(amnesia ? own_env : withCompileCache(own_env));
  const kekOf = await prepareKeks(services, own_env['RON_KEK'], stop.signal);
  await compileAhead(
    services.flatMap(({ entry }) => [entry.main, ...(entry.threads ?? [])]),
    withoutSecrets(env),
    stop.signal,
  );

  // Before the start, in which services create their files.
  const hasKeys = haveKeys(home, services);
  const node = new Node({
    services,
    canWaitFor: (name) => isOptional(services, name) || (hasKeys && name === keyService(services)),
    home,
    keepLogs: !amnesia,
    environmentOf: (entry) => environmentOf(entry, env, kekOf(entry)),
    onListening: (name, isFirst) => capabilities.onListening(name, isFirst, stop.signal),
    ...reporter(
      io,
      home,
      (name) => isOptional(services, name),
      () => writeState(locked, node, facts),
    ),
  });
  stop.onStop = () => void node.stop();
  stop.onAbort = () => node.abort();
  stop.onReload = () =>
    void planAt(home).then(
      (planned) => {
        node.follow(planned);
        node.forward('SIGHUP');
      },
      (error: unknown) => io.note(`configuration refused; the previous one stays in force: ${messageOf(error)}`),
    );
  const order = startOrder(services.map(({ entry }) => entry));
  const ready = node.start().then(async () => {
    await onAllReady(io, locked, node, facts);
    if (holdsSecrets(own_env)) (await import('@ron/service/protect-process')).protectProcess();
    // Ends with the signal.
    void renewRegularly(io, capabilities, stop.signal).catch(() => undefined);
    await noteProblems(io, order, home, stop.signal);
  });
  try {
    const why = await Promise.race([ready.then(() => stop.requested), node.failed, stop.requested]);
    await node.stop();
    if (why === 'requested') return stop.exit;
    throw failure(why, home.of(why.name).log, amnesia);
  } finally {
    await node.stop();
    await capabilities.close();
  }
}

/** The key of each service that does not hold that of the node. Seals its files with it. */
async function prepareKeks(
  services: readonly Planned[],
  kek: string | undefined,
  signal: AbortSignal,
): Promise<(entry: ServiceEntry) => string | undefined> {
  if (kek === undefined || kek === '') return () => undefined;
  const [{ serviceKek }, { resealFiles }] = await Promise.all([
    import('@ron/custody/sealed'),
    import('./sealed-files.ts'),
  ]);
  await resealFiles(services, { kek }, signal);
  return ({ name, holds_secrets }) => (holds_secrets === true ? undefined : serviceKek(kek, name));
}

const isOptional = (services: readonly Planned[], name: Service): boolean =>
  services.some(({ entry }) => entry.name === name && entry.is_optional === true);

const keyService = (services: readonly Planned[]): Service | undefined =>
  services.find(({ entry }) => entry.derives_keys === true)?.entry.name;

/** Whether an earlier start was complete, so that the services stored their keys and can check capabilities without kms. */
function haveKeys(home: Home, services: readonly Planned[]): boolean {
  const others = services.filter(({ entry }) => entry.derives_keys !== true && entry.is_optional !== true);
  return existsSync(home.capability) && others.every(({ entry }) => existsSync(home.of(entry.name).cache));
}

/**
 * glibc gives each thread its own malloc arena, and memory that was freed in one arena is not reused by another. With file
 * calls on many threads, this doubled the memory of storage under 250 readers. Other C libraries ignore the variable.
 */
const withOneMallocArena = (env: Io['env']): Io['env'] => ({
  ...env,
  MALLOC_ARENA_MAX: env['MALLOC_ARENA_MAX'] ?? '1',
});

type Facts = Omit<NodeState, 'services' | 'pids'>;

async function writeState(locked: LockedHome, node: Node, facts: Facts): Promise<void> {
  await locked.writeState({ ...facts, services: node.urls, pids: node.pids });
}

async function onAllReady(io: Io, locked: LockedHome, node: Node, facts: Facts): Promise<void> {
  await writeState(locked, node, facts);
  const { home } = locked;
  const services = node.urls;
  const [first] = Object.values(services);
  io.result(`ready  ${first}\n       capability in ${shownPath(home.capability)}, stop with Ctrl-C`, {
    ready: true,
    services,
    capability_file: home.capability,
    pids: node.pids,
  });
}

/**
 * Prints why ready services are degraded, for example by a missing volume; callees first. Polls for a moment, because a
 * service may not have reached another one that started after it.
 */
async function noteProblems(io: Io, order: readonly Service[], home: Home, signal: AbortSignal): Promise<void> {
  const reasonsOf = async (name: Service): Promise<string> =>
    await readinessOf(socketUrl(home, name), signal).then(
      ({ reasons }) => reasons,
      () => '',
    );
  const degraded = new Map(order.map((name) => [name, '']));
  for (let probes = 0; degraded.size > 0 && probes < PROBES_MAX; probes++) {
    // An abort means that the node drains.
    if (probes > 0) await sleep(PROBE_EVERY_MS, signal, 'readiness').catch(() => undefined);
    if (signal.aborted) return;
    const found = await Promise.all([...degraded.keys()].map(async (name) => [name, await reasonsOf(name)] as const));
    for (const [name, reasons] of found) {
      if (reasons === '') degraded.delete(name);
      else degraded.set(name, reasons);
    }
  }
  if (signal.aborted) return;
  for (const [name, reasons] of degraded) io.note(`${name} is degraded: ${reasons}`);
}

/** Renews capabilities every minute, and within seconds after the root of the keys changed. */
async function renewRegularly(io: Io, capabilities: NodeCapabilities, stopping: AbortSignal): Promise<void> {
  let renewed_ms = sched.now_ms();
  while (!stopping.aborted) {
    await sleep(ROOT_POLL_MS, stopping, 'capability.renew');
    const isDue = sched.now_ms() - renewed_ms >= RENEW_EVERY_MS;
    if (isDue) renewed_ms = sched.now_ms();
    using due = Deadline.after('capability.renew', RENEW_EVERY_MS, { signal: stopping });
    const work = (signal: AbortSignal): Promise<void> =>
      isDue ? capabilities.renew(signal) : capabilities.renewIfRootChanged(signal);
    // A failed renewal is retried in a minute; the capabilities of calls are valid for many of them.
    await due.run(work).catch((error: unknown) => {
      if (isDue && !stopping.aborted) io.note(`failed to renew capabilities: ${messageOf(error)}`);
    });
  }
}

function reporter(
  io: Io,
  home: Home,
  canMiss: (name: Service) => boolean,
  updateState: () => Promise<void>,
): Pick<ConstructorParameters<typeof Node>[0], 'onReady' | 'onCrash' | 'onDraining' | 'onLate'> {
  return {
    onReady(name, url, pid, isFirst, took_ms) {
      const line = `${name.padEnd(8)} ${url}  pid ${pid}, ${humanDuration(took_ms)}`;
      if (isFirst) {
        if (!io.json) io.result(line, undefined);
        return;
      }
      io.note(`${line}, restarted`);
      void updateState().catch((error: unknown) => io.note(`failed to write node.json: ${messageOf(error)}`));
    },
    onCrash: (name, why, restart_ms) => io.note(`${name} ${why}; restarting in ${humanDuration(restart_ms)}`),
    onLate: (name, error, tail) =>
      io.note(
        `${messageOf(error)}: ${tail.split('\n').at(-1)!.trim()}\n` +
          `     ${name} is restarted until it succeeds; meanwhile the others ` +
          `${canMiss(name) ? 'run without it' : 'check capabilities with stored keys'} (log: ${shownPath(home.of(name).log)})`,
      ),
    onDraining: (names) => io.note(`draining ${names.join(', ')}`),
  };
}

function failure({ name, error, tail, isStart }: Failure, log: string, isTemporary: boolean): CliError {
  const lines =
    tail === ''
      ? ''
      : `\n${tail
          .split('\n')
          .slice(-20)
          .map((line) => `  ${line}`)
          .join('\n')}`;
  const where = isTemporary ? '' : `\n     full log: ${log}`;
  if (error instanceof CliError) return error;
  if (exitOf(error) === 'permission') return new CliError('permission', messageOf(error));
  if (!isStart)
    return new CliError('internal', `${name} keeps crashing; stopped the node${lines}${where}`, 'unhealthy');
  const isConfig = error instanceof StartError && error.exit.code === EXIT_CONFIG;
  const why = messageOf(error);
  const hint = tail.includes('EADDRINUSE')
    ? '\n     the port is in use, perhaps by another node: choose other ports with --base-port'
    : '';
  return new CliError(isConfig ? 'config' : 'unavailable', `${why}${lines}${hint}${where}`, systemCode(error));
}

/** SIGINT and SIGTERM: the first drains, the second aborts. SIGHUP is forwarded to the services. */
class StopSignals {
  readonly #controller = new AbortController();
  readonly #requested = Promise.withResolvers<'requested'>();
  onStop: () => void = () => undefined;
  onAbort: () => void = () => undefined;
  onReload: () => void = () => undefined;
  exit: Exit = 'ok';
  #first_ms: number | undefined;

  constructor(io: Io) {
    process.on('SIGINT', () => this.#signal(io, 'interrupted'));
    process.on('SIGTERM', () => this.#signal(io, 'terminated'));
    process.on('SIGHUP', () => this.onReload());
    // Without a handler, Node opens a debugger port.
    process.on('SIGUSR1', () => undefined);
  }

  /** Aborted by the first signal. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get requested(): Promise<'requested'> {
    return this.#requested.promise;
  }

  #signal(io: Io, second: Exit): void {
    const now_ms = sched.now_ms();
    if (this.#first_ms === undefined) {
      this.#first_ms = now_ms;
      this.#controller.abort(new CliError(second, 'stopped before the start was complete'));
      this.#requested.resolve('requested');
      this.onStop();
    } else if (now_ms - this.#first_ms >= SAME_SIGNAL_MS && this.exit === 'ok') {
      io.note('second signal: aborting');
      this.exit = second;
      this.onAbort();
    }
  }
}
