/**
 * Validators and serializers of the routes, compiled from their schemas at first use. Compiling them all, and loading
 * the compilers, would take a tenth of the start time of a service, and most routes are not called in its first
 * seconds.
 *
 * Contract: a validator refuses unknown fields where the schema does, coerces nothing, fills in defaults and stops at the
 * first fault. A status without a response schema is serialized by `JSON.stringify`. Each schema is compiled once.
 * Bound: one function per schema of a route. A schema that does not compile fails the request that first needs it.
 *
 *   const parts = new SchemaCompiler().parts({ body: Type.Object({ name: Type.String() }) });
 *   const value = parts.parseJson('{"name":"a"}');      // throws bad_request when it is not JSON
 *   if (parts.body?.(value) === false) console.log(parts.body.errors);
 *   parts.serialize(200, value);
 */
import { createRequire } from 'node:module';
import { RonError } from '@ron/kernel';
import type { Ajv } from 'ajv';
import type FastJsonStringify from 'fast-json-stringify';
import { parse } from 'secure-json-parse';
import type { JsonSchema } from './schema.ts';
import type { Validate } from './route-errors.ts';
import type { RouteSchema } from './routes.ts';

/** Compiled from the schema of a row. */
export interface RouteParts {
  readonly params: Validate | undefined;
  readonly query: Validate | undefined;
  readonly body: Validate | undefined;
  /** Throws `bad_request`. Keys that would reach a prototype (`__proto__`, `constructor.prototype`) are refused too. */
  parseJson(text: string): unknown;
  serialize(status: number, value: unknown): string;
}

type Serialize = (value: unknown) => string;

/** A synchronous import: the first request that needs a validator cannot wait for a promise. */
const require = createRequire(import.meta.url);

const AJV_OPTIONS = {
  removeAdditional: false,
  coerceTypes: false,
  useDefaults: true,
  // Collecting all errors of a hostile body would cost more than the body.
  allErrors: false,
  addUsedSchema: false,
  logger: false,
} as const;

const PARSE_OPTIONS = { protoAction: 'error', constructorAction: 'error' } as const;

export class SchemaCompiler {
  #ajv: Ajv | undefined;
  #stringify: typeof FastJsonStringify | undefined;

  parts(schema: RouteSchema | undefined): RouteParts {
    return new LazyParts(this, schema ?? {});
  }

  validator(schema: JsonSchema): Validate {
    this.#ajv ??= new (require('ajv') as { Ajv: typeof Ajv }).Ajv(AJV_OPTIONS);
    return this.#ajv.compile(schema) as Validate;
  }

  serializer(schema: JsonSchema): Serialize {
    this.#stringify ??= require('fast-json-stringify') as typeof FastJsonStringify;
    return this.#stringify(schema as object as FastJsonStringify.Schema);
  }
}

/** `null`: not compiled yet. */
type Lazy = Validate | undefined | null;

class LazyParts implements RouteParts {
  readonly #compiler: SchemaCompiler;
  readonly #schema: RouteSchema;
  #params: Lazy = null;
  #query: Lazy = null;
  #body: Lazy = null;
  readonly #serializers = new Map<number, Serialize>();

  constructor(compiler: SchemaCompiler, schema: RouteSchema) {
    this.#compiler = compiler;
    this.#schema = schema;
  }

  get params(): Validate | undefined {
    if (this.#params === null) this.#params = this.#validator(this.#schema.params);
    return this.#params;
  }

  get query(): Validate | undefined {
    if (this.#query === null) this.#query = this.#validator(this.#schema.query);
    return this.#query;
  }

  get body(): Validate | undefined {
    if (this.#body === null) this.#body = this.#validator(this.#schema.body);
    return this.#body;
  }

  parseJson(text: string): unknown {
    try {
      // Most texts cannot contain such a key: a substring search costs less than the check of the parser.
      return mayReachPrototype(text) ? parse(text, null, PARSE_OPTIONS) : (JSON.parse(text) as unknown);
    } catch (error) {
      throw new RonError('bad_request', 'the body is not JSON', { cause: error });
    }
  }

  serialize(status: number, value: unknown): string {
    let serialize = this.#serializers.get(status);
    if (serialize === undefined) {
      const schema = this.#schema.response?.[status];
      if (schema === undefined) return JSON.stringify(value);
      serialize = this.#compiler.serializer(schema);
      this.#serializers.set(status, serialize);
    }
    return serialize(value);
  }

  #validator(schema: JsonSchema | undefined): Validate | undefined {
    return schema === undefined ? undefined : this.#compiler.validator(schema);
  }
}

/** A key may contain escapes, and a text may begin with a byte order mark, which the parser skips. */
function mayReachPrototype(text: string): boolean {
  return (
    text.includes('\\') || text.includes('__proto__') || text.includes('constructor') || text.charCodeAt(0) === 0xfeff
  );
}
