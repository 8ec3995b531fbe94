/**
 * JSON Schema with static types: a builder for the schemas of routes.
 *
 * Contract: each function returns a plain JSON Schema object. `Static` is the TypeScript type of the values that it accepts.
 * A property of an object is required unless it is marked by `Type.Optional`.
 *
 *     const Named = Type.Object({ name: Type.String({ maxLength: 64 }), note: Type.Optional(Type.String()) });
 *     type Named = Static<typeof Named>;   // { name: string; note?: string }
 */

declare const VALUE: unique symbol;
declare const OPTIONAL: unique symbol;

/** A JSON Schema of values of type `T`. */
export interface JsonSchema<T = unknown> {
  readonly [keyword: string]: unknown;
  readonly [VALUE]?: T;
}

interface OptionalSchema<T> extends JsonSchema<T> {
  readonly [OPTIONAL]: true;
}

export type Static<S extends JsonSchema> = S extends JsonSchema<infer T> ? T : never;

type Properties = Readonly<Record<string, JsonSchema>>;
type OptionalNames<P extends Properties> = {
  [K in keyof P]: P[K] extends OptionalSchema<unknown> ? K : never;
}[keyof P];
type Flat<T> = { [K in keyof T]: T[K] };
type ObjectOf<P extends Properties> = Flat<
  { [K in Exclude<keyof P, OptionalNames<P>>]: Static<P[K]> } & { [K in OptionalNames<P>]?: Static<P[K]> }
>;

/** Further keywords, such as `maxLength` or `description`. */
type Keywords = Readonly<Record<string, unknown>>;

/** Marked objects instead of a keyword, so that the schema itself stays plain. */
const optionals = new WeakSet<JsonSchema>();

function object<const P extends Properties>(properties: P, keywords: Keywords = {}): JsonSchema<ObjectOf<P>> {
  const required = Object.keys(properties).filter((name) => !optionals.has(properties[name]!));
  return { type: 'object', ...(required.length > 0 && { required }), properties, ...keywords };
}

function optional<T>(schema: JsonSchema<T>): OptionalSchema<T> {
  const marked = { ...schema } as OptionalSchema<T>;
  optionals.add(marked);
  return marked;
}

export const Type = {
  Object: object,
  Optional: optional,
  String: (keywords: Keywords = {}): JsonSchema<string> => ({ type: 'string', ...keywords }),
  Integer: (keywords: Keywords = {}): JsonSchema<number> => ({ type: 'integer', ...keywords }),
  Number: (keywords: Keywords = {}): JsonSchema<number> => ({ type: 'number', ...keywords }),
  Boolean: (keywords: Keywords = {}): JsonSchema<boolean> => ({ type: 'boolean', ...keywords }),
  Null: (): JsonSchema<null> => ({ type: 'null' }),
  Unknown: (): JsonSchema => ({}),
  Literal: <const V extends string | number | boolean>(value: V): JsonSchema<V> => ({
    type: typeof value,
    const: value,
  }),
  Array: <T>(items: JsonSchema<T>, keywords: Keywords = {}): JsonSchema<T[]> => ({ type: 'array', items, ...keywords }),
  Union: <const S extends readonly JsonSchema[]>(anyOf: S, keywords: Keywords = {}): JsonSchema<Static<S[number]>> => ({
    anyOf,
    ...keywords,
  }),
  /** An object whose names are free and whose values fit `values`. */
  Record: <T>(values: JsonSchema<T>, keywords: Keywords = {}): JsonSchema<Record<string, T>> => ({
    type: 'object',
    additionalProperties: values,
    ...keywords,
  }),
  /** Any JSON Schema, with a type that the caller states. */
  Unsafe: <T>(schema: Keywords): JsonSchema<T> => ({ ...schema }),
} as const;
