/**
 * Validators and serializers that are compiled when they are first needed: compiling those of all routes, and loading what
 * compiles them, is a tenth of what a service takes to start, and most routes are not called in its first seconds.
 *
 * Promise: they say what Fastify's own say: they are Fastify's own, made later. Each is compiled once.
 * Bound: one for each schema of a route. A schema that does not compile fails the request that first needs it.
 */
import { createRequire } from 'node:module';

/** The parts of Fastify's compilers that are used here; their own types differ between the libraries behind them. */
type Compiled = ((value: unknown) => unknown) & { errors?: unknown };
type Compile = (route: unknown) => Compiled;
type BuildCompiler = (schemas: unknown, options: unknown) => Compile;

/** Finds the compilers that Fastify itself would take. */
const requireOfFastify = createRequire(createRequire(import.meta.url).resolve('fastify'));

function lazily(name: string): never {
  const build: BuildCompiler = (schemas, options) => {
    const compile = once(() => (requireOfFastify(name) as () => BuildCompiler)()(schemas, options));
    return (route) => {
      const compiled = once(() => compile()(route));
      const run: Compiled = (value) => {
        const result = compiled()(value);
        run.errors = compiled().errors;
        return result;
      };
      return run;
    };
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- Fastify calls it as it calls its own
  return build as never;
}

export const LAZY_SCHEMAS = {
  compilersFactory: {
    buildValidator: lazily('@fastify/ajv-compiler'),
    buildSerializer: lazily('@fastify/fast-json-stringify-compiler'),
  },
};

function once<T>(make: () => T): () => T {
  let made: { readonly value: T } | undefined;
  return () => (made ??= { value: make() }).value;
}
