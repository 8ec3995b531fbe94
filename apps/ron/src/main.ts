/** Process entry of the command line. Each command loads its own dependencies. */
import { keepAlive } from './keep-alive.ts';
import { useCompileCache } from './compile-cache.ts';
import { runCli } from './cli.ts';
import { Io } from './io.ts';

// With --amnesia nothing is written to disk, not even compiled code.
if (!process.argv.includes('--amnesia')) useCompileCache(process.env);
keepAlive();
process.exit(await runCli(process.argv.slice(2), new Io()));
