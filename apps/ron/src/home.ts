/**
 * The directory of a node and the files in it.
 *
 *     .ron/keys              the root key of a node without kms, 0600
 *     .ron/root.cap          a capability for every service, 0600
 *     .ron/trust             optional: the keys that `ron verify` trusts
 *     .ron/lock              held by the running `ron up`
 *     .ron/node.json         process ids and URLs of the running services
 *     .ron/<service>/<callee>.cap  the capability with which it calls another service, 0600; one for each call of the table
 *     .ron/<service>/keys    without kms: the keys of this service
 *     .ron/<service>/auth    sealed cache of the keys and revocations, for a start without kms
 *     .ron/run/<service>.sock  the socket at which the service is called by the others and by `ron`, in a directory 0700
 *     .ron/kms/owner.cap     a capability with all scopes of kms, used to mint the others
 *     .ron/<service>/data    the data of the service
 *     .ron/storage/volumes.json  the volumes that storage knows: a start without data_dirs uses their directories
 *     .ron/net/key           the key of the network that the node has joined, 0600
 *     .ron/net/network.json  its bootstrap peers, and the address at which other nodes reach this one
 *     .ron/run/net           the same in amnesia; removed when the node stops
 *     .ron/logs/<service>.log
 */
import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join, relative, resolve } from 'node:path';
import type { Service } from '@ron/proto';
import { systemCode } from './exits.ts';
import type { Io } from './io.ts';

export const DIR_DEFAULT = '.ron';

export interface Home {
  readonly dir: string;
  readonly keys: string;
  readonly capability: string;
  readonly trust: string;
  readonly lock: string;
  readonly state: string;
  /** The directory of the sockets. */
  readonly run: string;
  readonly net: NetworkHome;
  of(service: Service): ServiceHome;
}

/** The files of the network that the node has joined. */
export interface NetworkHome {
  readonly dir: string;
  readonly key: string;
  readonly network: string;
}

/** The files of one service. */
export interface ServiceHome {
  readonly dir: string;
  readonly keys: string;
  /** The capability with which it calls another service. */
  capabilityFor(callee: Service, purpose?: string): string;
  readonly cache: string;
  readonly socket: string;
  readonly owner: string;
  readonly data: string;
  /** The list of the volumes that the service knows. */
  readonly volumes: string;
  readonly log: string;
}

export function homeAt(dir: string): Home {
  return {
    dir,
    keys: join(dir, 'keys'),
    capability: join(dir, 'root.cap'),
    trust: join(dir, 'trust'),
    lock: join(dir, 'lock'),
    state: join(dir, 'node.json'),
    run: join(dir, 'run'),
    net: networkHomeAt(join(dir, 'net')),
    of: (service) => ({
      dir: join(dir, service),
      keys: join(dir, service, 'keys'),
      capabilityFor: (callee, purpose) =>
        join(dir, service, purpose === undefined ? `${callee}.cap` : `${callee}-${purpose}.cap`),
      cache: join(dir, service, 'auth', 'cache'),
      socket: join(dir, 'run', `${service}.sock`),
      owner: join(dir, service, 'owner.cap'),
      data: join(dir, service, 'data'),
      volumes: join(dir, service, 'volumes.json'),
      log: join(dir, 'logs', `${service}.log`),
    }),
  };
}

const networkHomeAt = (dir: string): NetworkHome => ({
  dir,
  key: join(dir, 'key'),
  network: join(dir, 'network.json'),
});

/** The same directory for a node in amnesia, which is a member of a network only until it stops. */
export const inAmnesia = (home: Home): Home => ({ ...home, net: networkHomeAt(join(home.run, 'net')) });

export function homeOf(values: { readonly dir?: string | undefined }, io: Pick<Io, 'env'>): Home {
  return homeAt(resolve(values.dir ?? (io.env['RON_DIR'] || DIR_DEFAULT)));
}

/** The path for a person: relative if it is below the working directory. */
export function shownPath(path: string): string {
  const short = relative('.', path);
  return short.startsWith('..') ? path : short;
}

/** The content of `node.json`, by which other commands find the services. */
export interface NodeState {
  readonly pid: number;
  /** ISO 8601. */
  readonly started: string;
  /** It keeps everything in memory. Default false. */
  readonly amnesia?: boolean;
  readonly services: Readonly<Partial<Record<Service, string>>>;
  readonly pids: Readonly<Partial<Record<Service, number>>>;
}

/** Undefined if no node was started in this directory, or `node.json` is damaged. */
export async function readState(home: Home): Promise<NodeState | undefined> {
  try {
    const state = JSON.parse(await readFile(home.state, 'utf8')) as NodeState;
    return Number.isInteger(state.pid) && typeof state.services === 'object' ? state : undefined;
  } catch {
    return undefined;
  }
}

/** A service of a running node. */
export interface RunningService {
  /** Its URL for users. */
  readonly url: string;
  /** Its socket, as `unix:PATH`. */
  readonly socket_url: string;
}

/** Undefined if the node does not run, or runs without the service. */
export async function runningService(home: Home, service: Service): Promise<RunningService | undefined> {
  const state = await readState(home);
  const url = state !== undefined && isAlive(state.pid) ? state.services[service] : undefined;
  return url === undefined ? undefined : { url, socket_url: socketUrl(home, service) };
}

export function socketUrl(home: Home, service: Service): string {
  return `unix:${home.of(service).socket}`;
}

/** Whether the process runs. A zombie does not. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return !/\) [ZX] /.test(statusOf(pid));
  } catch (error) {
    return systemCode(error) === 'EPERM';
  }
}

function statusOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'utf8');
  } catch {
    // The system has no /proc.
    return '';
  }
}
