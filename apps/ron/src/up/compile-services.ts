/**
 * Loads the services whose `main.ts` files are given, and modules of their threads, and saves the compiled code.
 * `compile-ahead.ts` runs it.
 *
 * The property of the global object keeps them from starting (`COMPILE_ONLY` of the service shell).
 */
import { flushCompileCache } from 'node:module';
import { pathToFileURL } from 'node:url';

Object.assign(globalThis, { [Symbol.for('ron.compile_only')]: true });
for (const path of process.argv.slice(2)) {
  const loaded = import(pathToFileURL(path).href);
  // A module of a thread is compiled, but does not run here.
  await (path.endsWith('main.ts') ? loaded : loaded.catch(() => undefined));
}
flushCompileCache();
