/**
 * Configuration from one table: typed, validated, frozen.
 *
 * Contract: flags > environment > file > defaults. Every value of every source is checked, even if another source
 * overrides it; an unknown key is an error. Either all is right and the whole frozen config comes back, or `ConfigError`
 * lists every problem. A secret is never part of a message.
 * Bound: the table; each key has its own. Overflow: refused.
 */
import {
  describe,
  envName,
  formatProblem,
  fromEnv,
  fromFile,
  fromFlags,
  HIDDEN,
  isTable,
  type ConfigFile,
  type ConfigProblem,
  type Given,
  type Keys,
} from './given.ts';
import type { Key } from './keys.ts';
import { assert } from '@ron/kernel';

export type KeyTable = Readonly<Record<string, Key<unknown>>>;

type ValuesOf<K> = { readonly [N in keyof K]: K[N] extends Key<infer T> ? T : never };
type Below<V, Head extends string> = {
  readonly [N in keyof V as N extends `${Head}.${infer Rest}` ? Rest : never]: V[N];
};
/** `{'server.max_inflight': number}` -> `{server: {max_inflight: number}}`. */
type Tree<V> = {
  readonly [N in keyof V as N extends `${infer Head}.${string}` ? Head : N]: N extends `${infer Head}.${string}`
    ? Tree<Below<V, Head>>
    : V[N];
};

/** The frozen config that a table of keys gives. */
export type Config<K> = Tree<ValuesOf<K>>;
export type ConfigOf<S> = S extends ConfigSchema<infer K> ? Config<K> : never;

/** Reports a contradiction between keys: "expected more than dht.hedge_ms". */
export type Report<K> = (key: keyof K & string, expected: string) => void;

export interface ConfigSchema<K> {
  readonly keys: K;
  readonly check: ((config: Config<K>, report: Report<K>) => void) | undefined;
}

const schemas = new WeakSet<object>();

/** Whether a value came from `defineConfig`: how the docs find tables among a module's exports. */
export function isConfigSchema(value: unknown): value is ConfigSchema<KeyTable> {
  return typeof value === 'object' && value !== null && schemas.has(value);
}

const KEY_NAME = /^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$/;

/**
 * Declares the keys of a service. `check` gets the whole config once every single key is valid, and reports values that
 * contradict each other.
 */
export function defineConfig<const K extends KeyTable>(
  keys: K,
  check?: (config: Config<K>, report: Report<K>) => void,
): ConfigSchema<K> {
  const names = Object.keys(keys);
  const environment = new Map<string, string>();
  for (const name of names) {
    assert(KEY_NAME.test(name), `config key ${name}: lower case words joined by dots`);
    assert(!names.some((other) => other.startsWith(`${name}.`)), `config key ${name} is also a table`);
    const variable = envName('', name);
    assert(!environment.has(variable), `config keys ${name} and ${environment.get(variable)} share a variable`);
    environment.set(variable, name);
  }
  const schema = Object.freeze({ keys: Object.freeze(keys), check });
  schemas.add(schema);
  return schema;
}

export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  readonly problems: readonly ConfigProblem[];
  constructor(problems: readonly ConfigProblem[]) {
    const count = `${problems.length} configuration problem${problems.length === 1 ? '' : 's'}`;
    super([count, ...problems.map((problem) => `  ${formatProblem(problem)}`)].join('\n'));
    this.problems = problems;
  }
}

export interface LoadInit<K> {
  schema: ConfigSchema<K>;
  /** `--key=value` or `--key value`; a boolean alone is true. */
  flags?: readonly string[] | undefined;
  /** Only variables that begin with `env_prefix` are read. Default none. */
  env?: Readonly<Record<string, string | undefined>> | undefined;
  /** Such as `RON_STORAGE_`. A variable with it that names no key is a problem. */
  env_prefix?: string | undefined;
  file?: ConfigFile | undefined;
}

interface Found {
  readonly value: unknown;
  readonly source: string;
}

/** Throws `ConfigError` with every problem; otherwise the config is complete and deeply frozen. */
export function loadConfig<K extends KeyTable>(init: LoadInit<K>): Config<K> {
  const problems: ConfigProblem[] = [];
  const keys = new Map<string, Key<unknown>>(Object.entries(init.schema.keys));
  const found = new Map<string, Found>();
  for (const [name, key] of keys) if (key.fallback) found.set(name, { value: key.fallback.value, source: 'default' });
  // Weakest first: a later source overwrites an earlier one.
  for (const given of fromFile(init.file, keys, problems)) accept(given, keys, found, problems);
  for (const given of fromEnv(init.env ?? {}, init.env_prefix ?? '', keys, problems))
    accept(given, keys, found, problems);
  for (const given of fromFlags(init.flags ?? [], keys, problems)) accept(given, keys, found, problems);
  for (const [name, key] of keys) {
    const refused = problems.some((problem) => problem.key === name);
    if (!found.has(name) && !refused) {
      problems.push({ key: name, source: 'no source', expected: key.expected, found: 'nothing: it has no default' });
    }
  }
  if (problems.length > 0) throw new ConfigError(problems);
  const config = tree<K>(found);
  init.schema.check?.(config, (name, expected) => {
    const { value, source } = found.get(name)!;
    problems.push({ key: name, source, expected, found: keys.get(name)!.secret ? HIDDEN : describe(value) });
  });
  if (problems.length > 0) throw new ConfigError(problems);
  return config;
}

/** The value of a dotted key. */
export function configValue(config: unknown, key: string): unknown {
  let value = config;
  for (const part of key.split('.')) {
    if (typeof value !== 'object' || value === null) return undefined;
    value = Object.getOwnPropertyDescriptor(value, part)?.value;
  }
  return value;
}

function accept(given: Given, keys: Keys, found: Map<string, Found>, problems: ConfigProblem[]): void {
  const key = keys.get(given.key)!;
  const value = given.isText ? key.fromText(String(given.value)) : key.fromToml(given.value);
  if (value === undefined) {
    const shown = key.secret ? HIDDEN : describe(given.value);
    problems.push({ key: given.key, source: given.source, expected: key.expected, found: shown });
  } else found.set(given.key, { value, source: given.source });
}

function tree<K>(found: ReadonlyMap<string, Found>): Config<K> {
  const root: Record<string, unknown> = {};
  const tables = [root];
  for (const [name, { value }] of found) {
    const parts = name.split('.');
    let table = root;
    for (const part of parts.slice(0, -1)) {
      const below = table[part];
      if (isTable(below)) table = below;
      else {
        const fresh: Record<string, unknown> = {};
        tables.push(fresh);
        table[part] = fresh;
        table = fresh;
      }
    }
    table[parts.at(-1)!] = value;
  }
  for (const table of tables) Object.freeze(table);
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- every key was accepted by its own codec
  return root as Config<K>;
}
