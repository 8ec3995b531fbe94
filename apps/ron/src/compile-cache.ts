/**
 * The V8 compile cache of the command line and the services. It halves the time of every start after the first.
 *
 * Contract: the cache is in a directory that only its owner can write, because a user who can write there can run code as
 * the owner. Node's default is the shared directory for temporary files. The cache holds code only, no user data. If the
 * directory cannot be created, there is no cache.
 */
import { mkdirSync } from 'node:fs';
import { enableCompileCache } from 'node:module';
import { join } from 'node:path';
import { cacheHome } from './cache-home.ts';

type Env = Readonly<Record<string, string | undefined>>;

/** Enables the cache in this process, unless NODE_COMPILE_CACHE did. */
export function useCompileCache(env: Env): void {
  if (env['NODE_COMPILE_CACHE']) return;
  const dir = compileCacheDir(env);
  try {
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    enableCompileCache(dir);
  } catch {
    // Without a cache, everything is compiled at each start.
  }
}

/** The environment of a child process that shares the cache. */
export function withCompileCache(env: Env): Env {
  if (env['NODE_COMPILE_CACHE']) return env;
  return { ...env, NODE_COMPILE_CACHE: compileCacheDir(env) };
}

const compileCacheDir = (env: Env): string => join(cacheHome(env), 'compiled');
