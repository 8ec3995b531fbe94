/**
 * Loads the services whose `main.ts` files are given, and saves their compiled code. `compile-ahead.ts` runs it.
 *
 * The variable that `compile-ahead.ts` sets keeps them from starting.
 */
import { flushCompileCache } from 'node:module';
import { pathToFileURL } from 'node:url';

for (const main of process.argv.slice(2)) await import(pathToFileURL(main).href);
flushCompileCache();
