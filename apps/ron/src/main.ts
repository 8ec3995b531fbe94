/** Process entry of the command line. Everything heavy is loaded by the command that needs it. */
import { keepAlive } from './keep-alive.ts';
import { useCompileCache } from './compile-cache.ts';
import { runCli } from './cli.ts';
import { Io } from './io.ts';

// Code only, nothing of the user's; yet who asks to be forgotten should find nothing new on the disk.
if (!process.argv.includes('--amnesia')) useCompileCache(process.env);
keepAlive();
process.exit(await runCli(process.argv.slice(2), new Io()));
