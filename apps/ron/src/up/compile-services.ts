/**
 * Loads the services whose `main.ts` files are given, and saves their compiled code. `compile-ahead.ts` runs it.
 *
 * The property of the global object keeps them from starting (`COMPILE_ONLY` of the service shell).
 */
import { flushCompileCache } from 'node:module';
import { pathToFileURL } from 'node:url';

Object.assign(globalThis, { [Symbol.for('ron.compile_only')]: true });
for (const main of process.argv.slice(2)) await import(pathToFileURL(main).href);
flushCompileCache();
