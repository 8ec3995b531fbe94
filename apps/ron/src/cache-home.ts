/** Where the command line keeps what can be lost without harm: below XDG_CACHE_HOME, or in the home directory. */
import { homedir } from 'node:os';
import { join } from 'node:path';

export function cacheHome(env: Readonly<Record<string, string | undefined>>): string {
  return join(env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'ron');
}
