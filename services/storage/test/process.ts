/** The storage service as a process, and file systems of limited size for it. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ServiceProcess, type ServiceProcessInit } from '@ron/testkit/service';

const MAIN = fileURLToPath(new URL('../src/main.ts', import.meta.url));

export type ProcessOptions = Partial<ServiceProcessInit>;

/** `main`: an entry of the test's own, which has an IPC channel to the test. */
export const startProcess = (options: ProcessOptions): Promise<ServiceProcess> =>
  ServiceProcess.start({ ipc: options.main !== undefined, main: MAIN, ...options });

export const keysIn = (dir: string): string => join(dir, 'keys');

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
