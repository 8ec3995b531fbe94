/**
 * The kinds of configuration keys, and the values that each accepts from text (flags, environment) and from TOML.
 *
 * Contract: a value is accepted whole or refused; nothing is coerced, cut or rounded. A default that its own bounds refuse
 * is an error where it is declared.
 * Bound: every kind has a range or a length. Overflow: refused.
 */
import { assert } from '@ron/kernel';
import {
  formatDuration,
  formatRate,
  formatSize,
  parseDuration_ms,
  parseRate_bytes_per_s,
  parseSize_bytes,
} from './units.ts';

export interface KeyInit {
  /** One sentence for the operator that describes its effect. */
  doc: string;
  /** Whether SIGHUP may change it. Default false: then a change needs a restart, and a reload that tries says so. */
  reloadable?: boolean;
  /** A secret is never printed: not in problems, not in dumps, not in docs. Default false. */
  secret?: boolean;
}

export interface Key<T> {
  readonly kind: string;
  /** "an integer from 1 to 65536": completes the sentence "expected ...". */
  readonly expected: string;
  readonly doc: string;
  readonly reloadable: boolean;
  readonly secret: boolean;
  /** Absent: the key must be set. */
  readonly fallback: { readonly value: T } | undefined;
  /** Undefined means refused. */
  fromText(text: string): T | undefined;
  fromToml(value: unknown): T | undefined;
  /** As a TOML value. */
  toToml(value: T): string;
}

interface Codec<T> {
  kind: string;
  expected: string;
  fromText(text: string): T | undefined;
  fromToml(value: unknown): T | undefined;
  toToml(value: T): string;
}

/** `key.duration({ default: '5s', doc: '...' })` and so on: the right-hand sides of a config table. */
export const key = {
  integer: integerKey,
  decimal: decimalKey,
  boolean: booleanKey,
  text: textKey,
  oneOf: oneOfKey,
  list: listKey,
  duration: durationKey,
  size: sizeKey,
  rate: rateKey,
  optional: optionalKey,
};

function makeKey<T>(codec: Codec<T>, init: KeyInit, fallback: T | undefined): Key<T> {
  if (fallback !== undefined) {
    assert(codec.fromToml(fallback) !== undefined, `the default is not ${codec.expected} ("${init.doc}")`);
  }
  return {
    ...codec,
    doc: init.doc,
    reloadable: init.reloadable ?? false,
    secret: init.secret ?? false,
    fallback: fallback === undefined ? undefined : { value: fallback },
  };
}

export interface IntegerInit extends KeyInit {
  default?: number;
  /** Default 0. */
  min?: number;
  /** Default 2^31 - 1. */
  max?: number;
}

function integerKey(init: IntegerInit): Key<number> {
  const { min = 0, max = 2 ** 31 - 1 } = init;
  return makeKey(
    {
      kind: 'integer',
      expected: `an integer from ${min} to ${max}`,
      fromText: (text) => (/^-?\d{1,16}$/.test(text) ? within(Number(text), min, max) : undefined),
      fromToml: (value) => (Number.isInteger(value) ? within(value, min, max) : undefined),
      toToml: String,
    },
    init,
    init.default,
  );
}

export interface DecimalInit extends KeyInit {
  default?: number;
  min: number;
  max: number;
}

/** A number with a fraction: ratios, thresholds. */
function decimalKey(init: DecimalInit): Key<number> {
  const { min, max } = init;
  return makeKey(
    {
      kind: 'number',
      expected: `a number from ${min} to ${max}`,
      fromText: (text) =>
        /^-?\d{1,16}(\.\d{1,16})?(e-?\d{1,2})?$/.test(text) ? within(Number(text), min, max) : undefined,
      fromToml: (value) => within(value, min, max),
      toToml: String,
    },
    init,
    init.default,
  );
}

function booleanKey(init: KeyInit & { default?: boolean }): Key<boolean> {
  return makeKey(
    {
      kind: 'boolean',
      expected: 'true or false',
      fromText: (text) => (text === 'true' ? true : text === 'false' ? false : undefined),
      fromToml: (value) => (typeof value === 'boolean' ? value : undefined),
      toToml: String,
    },
    init,
    init.default,
  );
}

export interface TextInit extends KeyInit {
  default?: string;
  /** The whole value must match. */
  pattern?: RegExp;
  /** A description of the pattern, completing "expected ...". Default: a line of text. */
  expects?: string;
  /** In UTF-16 units. Default 4096. */
  length_max?: number;
}

function textKey(init: TextInit): Key<string> {
  const { pattern, length_max = 4096 } = init;
  const expected = `${init.expects ?? 'a line of text'} of at most ${length_max} characters`;
  const accept = (value: unknown): string | undefined => (isLine(value, length_max, pattern) ? value : undefined);
  return makeKey(
    { kind: 'text', expected, fromText: accept, fromToml: accept, toToml: JSON.stringify },
    init,
    init.default,
  );
}

function oneOfKey<const V extends string>(values: readonly V[], init: KeyInit & { default?: V }): Key<V> {
  const accept = (value: unknown): V | undefined => values.find((candidate) => candidate === value);
  return makeKey(
    {
      kind: 'choice',
      expected: `one of ${values.join(', ')}`,
      fromText: accept,
      fromToml: accept,
      toToml: (value) => JSON.stringify(value),
    },
    init,
    init.default,
  );
}

export interface ListInit extends KeyInit {
  default?: readonly string[];
  /** Each item must match. */
  pattern?: RegExp;
  /** A description of the items, completing "a list of at most 64 ...". Default: texts. */
  expects?: string;
  /** Default 64. */
  items_max?: number;
  /** Of one item. Default 1024. */
  length_max?: number;
}

/** Texts; in flags and environment separated by commas, or written as in a file: `["a", "b"]`. */
function listKey(init: ListInit): Key<readonly string[]> {
  const { pattern, items_max = 64, length_max = 1024 } = init;
  const fromToml = (value: unknown): readonly string[] | undefined => {
    if (!Array.isArray(value) || value.length > items_max) return undefined;
    const items = value.filter((item) => isLine(item, length_max, pattern));
    return items.length === value.length ? Object.freeze(items) : undefined;
  };
  return makeKey(
    {
      kind: 'list',
      expected: `a list of at most ${items_max} ${init.expects ?? 'texts'}`,
      fromText: (line) => fromToml(itemsIn(line)),
      fromToml,
      toToml: (value) => `[${value.map((item) => JSON.stringify(item)).join(', ')}]`,
    },
    init,
    init.default === undefined ? undefined : Object.freeze([...init.default]),
  );
}

/** Undefined when it begins like a TOML list and is not one: splitting it would give unintended items. */
function itemsIn(line: string): unknown {
  if (line === '') return [];
  if (!line.startsWith('["')) return line.split(',').map((item) => item.trim());
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

export interface QuantityInit extends KeyInit {
  default?: string;
  min?: string;
  max?: string;
}

/** The value is in milliseconds. Default bounds: 0 to 24 days, the longest that a timer can wait. */
function durationKey(init: QuantityInit): Key<number> {
  return quantity('duration', 'a duration', parseDuration_ms, formatDuration, init, '24d');
}

/** The value is in bytes. Default bounds: 0 to 8191 TiB. */
function sizeKey(init: QuantityInit): Key<number> {
  return quantity('size', 'a size', parseSize_bytes, formatSize, init, '8191TiB');
}

/** The value is in bytes per second. Default bounds: 0 to 1 TiB/s. */
function rateKey(init: QuantityInit): Key<number> {
  return quantity('rate', 'a rate', parseRate_bytes_per_s, formatRate, init, '1TiB/s');
}

/** The same key, but it may be left out: then its value is undefined. */
function optionalKey<T>(inner: Key<T>): Key<T | undefined> {
  assert(inner.fallback === undefined, 'an optional key has no default');
  return {
    ...inner,
    fallback: { value: undefined },
    toToml: (value) => (value === undefined ? '' : inner.toToml(value)),
  };
}

function quantity(
  kind: string,
  what: string,
  parse: (text: string) => number | undefined,
  format: (value: number) => string,
  init: QuantityInit,
  max_default: string,
): Key<number> {
  const declared = (text: string): number => {
    const value = parse(text);
    assert(value !== undefined, `${text} is not ${what}`);
    return value;
  };
  const min = declared(init.min ?? '0');
  const max = declared(init.max ?? max_default);
  const accept = (value: unknown): number | undefined =>
    within(typeof value === 'string' ? parse(value) : Number.isInteger(value) ? value : undefined, min, max);
  return makeKey(
    {
      kind,
      expected: `${what} from ${format(min)} to ${format(max)}`,
      fromText: accept,
      fromToml: accept,
      toToml: (value) => JSON.stringify(format(value)),
    },
    init,
    init.default === undefined ? undefined : declared(init.default),
  );
}

function within(value: unknown, min: number, max: number): number | undefined {
  // Adding zero turns -0 into 0.
  return typeof value === 'number' && value >= min && value <= max ? value + 0 : undefined;
}

/** No control characters: a configured text may end up in a header, a path or a log line. */
function isLine(value: unknown, length_max: number, pattern: RegExp | undefined): value is string {
  // oxlint-disable-next-line no-control-regex -- refusing them is the point
  if (typeof value !== 'string' || value.length > length_max || /[\u0000-\u001f\u007f]/.test(value)) return false;
  if (!value.isWellFormed()) return false;
  return pattern === undefined || pattern.exec(value)?.[0] === value;
}
