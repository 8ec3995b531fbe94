/** The cache directory of the command line, below XDG_CACHE_HOME or `~/.cache`. Its contents may be deleted at any time. */
import { homedir } from 'node:os';
import { join } from 'node:path';

export function cacheHome(env: Readonly<Record<string, string | undefined>>): string {
  return join(env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'ron');
}
