/**
 * Compiled code of the command line and of the services, so that a start after the first takes half the time.
 *
 * Promise: it lies where only its owner can write: whoever could write there could run code here. Not in the directory for
 * temporary files, which is where Node would put it. Code only, nothing of the user's. Without such a place there is none.
 */
import { mkdirSync } from 'node:fs';
import { enableCompileCache } from 'node:module';
import { join } from 'node:path';
import { cacheHome } from './cache-home.ts';

type Env = Readonly<Record<string, string | undefined>>;

/** For this process; who named another place in NODE_COMPILE_CACHE has it already. */
export function useCompileCache(env: Env): void {
  if (env['NODE_COMPILE_CACHE']) return;
  const dir = compileCacheDir(env);
  try {
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    enableCompileCache(dir);
  } catch {
    // No such place: everything is compiled each time.
  }
}

/** The environment of a process that shares it. */
export function withCompileCache(env: Env): Env {
  if (env['NODE_COMPILE_CACHE']) return env;
  return { ...env, NODE_COMPILE_CACHE: compileCacheDir(env) };
}

const compileCacheDir = (env: Env): string => join(cacheHome(env), 'compiled');
