/**
 * Reads the values of each source of configuration: a TOML file, the environment, the command line.
 *
 * Contract: every entry comes out once, either as a value for a known key or as a problem that says where it stands and
 * which key was meant. The value of an unknown key is never shown: it may be a secret under a mistyped name.
 * Bound: the sources themselves; a file nests at most `NESTING_MAX` deep. Overflow: a problem.
 */
import { parse as parseToml, TomlError } from 'smol-toml';
import type { Key } from './keys.ts';
import { nearest } from './nearest.ts';

const NESTING_MAX = 32;

export type Keys = ReadonlyMap<string, Key<unknown>>;

/** One value of a source, before its key is checked. */
export interface Given {
  readonly key: string;
  readonly source: string;
  readonly value: unknown;
  readonly isText: boolean;
}

export interface ConfigProblem {
  readonly key: string;
  /** `flag --a.b`, `env RON_STORAGE_A_B`, `file ron.toml`, `default`. */
  readonly source: string;
  readonly expected: string;
  readonly found: string;
  /** The known key that an unknown one most likely meant, spelled as the source spells it. */
  readonly nearest?: string;
}

export function formatProblem(problem: ConfigProblem): string {
  const hint = problem.nearest === undefined ? '' : `; did you mean ${problem.nearest}?`;
  return `${problem.key}: expected ${problem.expected}, found ${problem.found} (${problem.source})${hint}`;
}

export interface ConfigFile {
  readonly path: string;
  readonly text: string;
  /** Read this top-level table only; tables beside it belong to others. Default: the keys stand at the top level. */
  readonly table?: string | undefined;
}

/** `server.max_inflight` with prefix `RON_STORAGE_` -> `RON_STORAGE_SERVER_MAX_INFLIGHT`. */
export function envName(prefix: string, key: string): string {
  return prefix + key.replaceAll('.', '_').toUpperCase();
}

export function* fromFile(file: ConfigFile | undefined, keys: Keys, problems: ConfigProblem[]): Iterable<Given> {
  if (file === undefined) return;
  const source = `file ${file.path}`;
  const document = parseFile(file, problems);
  if (document === undefined) return;
  const tables = new Set([...keys.keys()].flatMap(parents));
  const pending: { prefix: string; table: object }[] = [{ prefix: '', table: document }];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    for (const [name, value] of Object.entries(next.table)) {
      const key = next.prefix + name;
      if (keys.has(key)) yield { key, source, value, isText: false };
      else if (tables.has(key) && isTable(value)) pending.push({ prefix: `${key}.`, table: value });
      else if (tables.has(key)) problems.push({ key, source, expected: 'a table of keys', found: kindOf(value) });
      else problems.push(unknown(key, source, keys.keys(), key));
    }
  }
}

/** The table to read, or undefined when there is none; then the problem is listed. */
function parseFile(file: ConfigFile, problems: ConfigProblem[]): object | undefined {
  const source = `file ${file.path}`;
  let document: Record<string, unknown>;
  try {
    document = parseToml(file.text, { integersAsBigInt: 'asNeeded', maxDepth: NESTING_MAX });
  } catch (error) {
    // Its message also quotes the lines around the mistake, and those may hold a secret.
    const { message, place } =
      error instanceof TomlError ? tomlMistake(error) : { message: 'a document that the parser refuses', place: '' };
    problems.push({ key: '(file)', source: source + place, expected: 'TOML', found: message });
    return undefined;
  }
  if (file.table === undefined) return document;
  for (const [name, value] of Object.entries(document)) {
    if (!isTable(value))
      problems.push({ key: shown(name), source, expected: 'one table per service', found: kindOf(value) });
  }
  const table = Object.hasOwn(document, file.table) ? document[file.table] : {};
  return isTable(table) ? table : undefined;
}

function tomlMistake(error: TomlError): { message: string; place: string } {
  const [first = ''] = error.message.split('\n');
  return { message: first.replace('Invalid TOML document: ', ''), place: ` line ${error.line} column ${error.column}` };
}

export function* fromEnv(
  env: Readonly<Record<string, string | undefined>>,
  prefix: string,
  keys: Keys,
  problems: ConfigProblem[],
): Iterable<Given> {
  if (prefix === '') return;
  const variables = new Map([...keys.keys()].map((key) => [envName(prefix, key), key]));
  for (const [variable, value] of Object.entries(env)) {
    if (!variable.startsWith(prefix) || value === undefined) continue;
    const key = variables.get(variable);
    if (key === undefined) problems.push(unknown(variable, 'environment', variables.keys(), variable));
    else yield { key, source: `env ${variable}`, value, isText: true };
  }
}

export function* fromFlags(flags: readonly string[], keys: Keys, problems: ConfigProblem[]): Iterable<Given> {
  const seen = new Set<string>();
  for (let index = 0; index < flags.length; index++) {
    const flag = flags[index]!;
    const match = /^--([^=]+)(=(.*))?$/s.exec(flag);
    if (match === null) {
      // Not quoted: it may be the value of a secret whose flag was mistyped.
      problems.push({
        key: `argument ${index + 1}`,
        source: 'command line',
        expected: '--key=value',
        found: 'something else',
      });
      continue;
    }
    const [, name = '', , value] = match;
    const key = keys.get(name);
    const next = flags[index + 1];
    const isAlone = key?.kind === 'boolean' && next !== 'true' && next !== 'false';
    const takesNext = value === undefined && !isAlone && next !== undefined && !next.startsWith('--');
    if (takesNext) index++;
    if (key === undefined) {
      problems.push(
        unknown(
          `--${name}`,
          'command line',
          [...keys.keys()].map((known) => `--${known}`),
          `--${name}`,
        ),
      );
    } else if (seen.has(name)) {
      problems.push({ key: name, source: `flag --${name}`, expected: 'one value', found: 'the flag twice' });
    } else {
      seen.add(name);
      yield {
        key: name,
        source: `flag --${name}`,
        value: value ?? (takesNext ? next : isAlone ? 'true' : ''),
        isText: true,
      };
    }
  }
}

function unknown(name: string, source: string, known: Iterable<string>, typed: string): ConfigProblem {
  const meant = nearest(typed, known);
  const problem = { key: shown(name), source, expected: 'a key of this service', found: 'an unknown key' };
  return meant === undefined ? problem : { ...problem, nearest: meant };
}

/** `a.b.c` -> `a`, `a.b`. */
function parents(key: string): string[] {
  const parts = key.split('.');
  return parts.slice(1).map((_, index) => parts.slice(0, index + 1).join('.'));
}

export function isTable(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Date);
}

export const HIDDEN = 'a value that is not shown';
const SHOWN_LENGTH_MAX = 64;

/** A value for a message: quoted, so that no control character reaches the terminal, and short. */
export function describe(value: unknown): string {
  if (typeof value === 'string') return quoted(value);
  if (Array.isArray(value)) return cut(`[${value.map(describe).join(', ')}]`);
  if (typeof value === 'object' && value !== null) return kindOf(value);
  return String(value);
}

/** JSON leaves DEL and the C1 controls as they are, and a terminal may obey them. */
const quoted = (line: string): string =>
  JSON.stringify(cut(line)).replace(/[\u007f-\u009f]/g, (char) => `\\u00${char.charCodeAt(0).toString(16)}`);

const cut = (line: string): string => (line.length > SHOWN_LENGTH_MAX ? `${line.slice(0, SHOWN_LENGTH_MAX)}...` : line);

function kindOf(value: unknown): string {
  if (Array.isArray(value)) return 'an array';
  if (value instanceof Date) return 'a date';
  return isTable(value) ? 'a table' : `a ${typeof value}`;
}

/** An unknown name as it stands when it is harmless, otherwise quoted. */
const shown = (name: string): string => (/^[\w.-]{1,64}$/.test(name) ? name : quoted(name));
