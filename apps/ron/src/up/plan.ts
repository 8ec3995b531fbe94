/**
 * Computes the flags of each service from the operator's file, `--set`, and the directory and ports of the node.
 *
 * Contract: a default never overrides a value of the operator in `--set`, the environment or the file. A table or `--set`
 * for an unknown service is refused, with the nearest known name.
 */
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { nearest } from '@ron/config/nearest';
import { isService, SERVICES, SOCKET_PATH_BYTES_MAX } from '@ron/proto';
import { parse as parseToml } from 'smol-toml';
import type { Option } from '../command.ts';
import { CliError, messageOf } from '../exits.ts';
import { socketUrl, type Home } from '../home.ts';
import { checkTable } from './table/call-graph.ts';
import type { Place, ServiceEntry } from './table/service-entry.ts';

/** The flags of `ron up` and `ron config`. */
export const PLAN_OPTIONS = {
  dir: { type: 'string', value: 'DIR', doc: 'The directory of the node. Default: RON_DIR, or ./.ron.' },
  'base-port': {
    type: 'string',
    value: 'PORT',
    doc: 'The base of the ports; storage uses the next one. Default 7100; 0 chooses free ports.',
  },
  only: { type: 'string', value: 'A,B', doc: 'Start only these services. Default: all.' },
  config: { type: 'string', value: 'FILE', doc: 'A TOML file with one table for each service. Default: none.' },
  set: {
    type: 'string',
    multiple: true,
    value: 'SERVICE.KEY=VALUE',
    doc: 'Set one key; overrides the file. Repeatable.',
  },
  degraded: {
    type: 'boolean',
    doc: 'Answer 404 for an object that is not found, even if it may be on a missing volume.',
  },
  amnesia: { type: 'boolean', doc: 'Keep everything in memory; all data is lost when the node stops.' },
} as const satisfies Record<string, Option>;

export interface PlanInit {
  readonly place: Omit<Place, 'services' | 'key_service'>;
  readonly table: readonly ServiceEntry[];
  readonly only?: string | undefined;
  readonly config?: string | undefined;
  readonly set?: readonly string[] | undefined;
  readonly env: Readonly<Record<string, string | undefined>>;
}

export interface Planned {
  readonly entry: ServiceEntry;
  /** The flags of its process. */
  readonly flags: readonly string[];
  /** The text of a configuration key from the flags, the environment or the file; undefined if the service's default applies. */
  readonly value: (key: string) => string | undefined;
}

export async function plan(init: PlanInit): Promise<Planned[]> {
  checkTable(init.table);
  const entries = chosen(init.table, init.only);
  const tables = init.config === undefined ? {} : await readTables(init.config);
  const sets = (init.set ?? []).map(parseSet);
  for (const { name, key } of sets) {
    requireBuilt(init.table, name, '--set');
    if (OWN_KEYS.has(key)) throw new CliError('usage', `--set: ${key} is set by \`ron up\``);
  }
  checkSocketPaths(init.place.home, entries);
  const services = entries.map(({ name }) => name);
  const key_service = entries.find((entry) => entry.derives_keys === true)?.name;
  const place: Place = { ...init.place, services, key_service };
  for (const { name, calls } of entries) {
    const missing = calls.find(({ to, isRequired }) => isRequired === true && !services.includes(to));
    if (missing !== undefined) throw new CliError('usage', `--only: ${name} requires ${missing.to}; add it`);
  }
  return entries.map((entry) => {
    const own = sets.filter(({ name }) => name === entry.name);
    const defaults = Object.entries({ ...entry.defaults(place), ...callDefaults(entry, place) }).filter(([key]) => {
      const isSet = own.some((set) => set.key === key);
      return (
        !isSet && valueIn(tables[entry.name], key) === undefined && init.env[variableOf(entry.name, key)] === undefined
      );
    });
    const file = init.config === undefined ? [] : [`--config=${resolve(init.config)}`, `--config-table=${entry.name}`];
    const socket = ['server.socket', place.home.of(entry.name).socket] as const;
    const flags = [...defaults, ...own.map(({ key, value }) => [key, value] as const), socket];
    const value = (key: string): string | undefined => {
      const found =
        flags.findLast(([name]) => name === key)?.[1] ??
        init.env[variableOf(entry.name, key)] ??
        valueIn(tables[entry.name], key);
      return typeof found === 'string' ? found : undefined;
    };
    return { entry, flags: [...file, ...flags.map(([key, text]) => `--${key}=${text}`)], value };
  });
}

/** The callers of a service and `ron` itself know its socket by the directory of the node. */
const OWN_KEYS = new Set(['server.socket', 'server.listen_fd']);

function checkSocketPaths(home: Home, entries: readonly ServiceEntry[]): void {
  const over = Math.max(...entries.map(({ name }) => Buffer.byteLength(home.of(name).socket))) - SOCKET_PATH_BYTES_MAX;
  if (over <= 0) return;
  throw new CliError(
    'usage',
    `${home.dir}: the path is ${over} bytes too long for the sockets in it; choose a shorter one with --dir`,
  );
}

/** The configuration keys that name the socket and the capability file of each callee. */
function callDefaults({ name, calls }: ServiceEntry, { home, services }: Place): Record<string, string> {
  const defaults: Record<string, string> = {};
  for (const { to, scopes, purpose, config = {} } of calls) {
    if (!services.includes(to)) continue;
    if (config.url !== undefined) defaults[config.url] = socketUrl(home, to);
    if (config.capability_file !== undefined && scopes.length > 0)
      defaults[config.capability_file] = home.of(name).capabilityFor(to, purpose);
  }
  return defaults;
}

export function parsePort(text: string | undefined, fallback: number): number {
  if (text === undefined) return fallback;
  // The ports of all services must be valid.
  const port = /^\d{1,5}$/.test(text) ? Number(text) : NaN;
  if (port >= 0 && port <= 65_500) return port;
  throw new CliError('usage', `--base-port must be a number from 0 to 65500, not ${JSON.stringify(text)}`);
}

function chosen(table: readonly ServiceEntry[], only: string | undefined): readonly ServiceEntry[] {
  if (only === undefined) return table;
  const names = only.split(',').map((name) => name.trim());
  for (const name of names) requireBuilt(table, name, '--only');
  return table.filter((entry) => names.includes(entry.name));
}

function requireBuilt(table: readonly ServiceEntry[], name: string, flag: string): void {
  if (table.some((entry) => entry.name === name)) return;
  if (isService(name)) throw new CliError('usage', `${flag}: ${name} is not available yet`);
  const meant = nearest(name, SERVICES);
  const hint = meant === undefined ? '' : `: did you mean ${meant}?`;
  throw new CliError('usage', `${flag}: unknown service ${JSON.stringify(name)}${hint}`);
}

/** `storage.server.max_inflight=10` */
function parseSet(text: string): { name: string; key: string; value: string } {
  const match = /^([a-z]+)\.([^=]+)=(.*)$/s.exec(text);
  if (match === null) throw new CliError('usage', `--set must be SERVICE.KEY=VALUE, not ${JSON.stringify(text)}`);
  const [, name = '', key = '', value = ''] = match;
  return { name, key, value };
}

async function readTables(path: string): Promise<Record<string, unknown>> {
  let tables: Record<string, unknown>;
  try {
    tables = parseToml(await readFile(path, 'utf8'));
  } catch (error) {
    // The first line only: the rest quotes the file, which may contain a secret.
    const [why] = messageOf(error).split('\n');
    throw new CliError('config', `${path}: ${why}`);
  }
  for (const name of Object.keys(tables)) {
    if (isService(name)) continue;
    const meant = nearest(name, SERVICES);
    const hint = meant === undefined ? '' : `: did you mean [${meant}]?`;
    throw new CliError('config', `${path}: unknown service ${JSON.stringify(name)}${hint}`);
  }
  return tables;
}

/** The value of a dotted key in a table, at any nesting. */
function valueIn(table: unknown, key: string): unknown {
  let at = table;
  for (const part of key.split('.')) {
    if (typeof at !== 'object' || at === null || !Object.hasOwn(at, part)) return undefined;
    at = (at as Record<string, unknown>)[part];
  }
  return at;
}

const variableOf = (name: string, key: string): string => `RON_${name}_${key.replaceAll('.', '_')}`.toUpperCase();
