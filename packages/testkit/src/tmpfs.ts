/** File systems of limited size, for tests as root. */
import { spawnSync } from 'node:child_process';

/** Mounts a small file system at `dir`; undefined if mounting is not permitted. */
export function mountTmpfs(dir: string, size: string): Mount | undefined {
  const run = (...args: string[]): boolean => spawnSync(args[0]!, args.slice(1), { stdio: 'ignore' }).status === 0;
  if (!run('mount', '-t', 'tmpfs', '-o', `size=${size}`, 'tmpfs', dir)) return undefined;
  return {
    remount: (options) => run('mount', '-o', `remount,${options}`, dir),
    [Symbol.dispose]: () => void run('umount', '-l', dir),
  };
}

export interface Mount extends Disposable {
  remount(options: string): boolean;
}

export const NO_MOUNT = 'mounting a tmpfs is not permitted here';
