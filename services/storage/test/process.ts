/** The storage service as a process. */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ServiceProcess, type ServiceProcessInit } from '@ron/testkit/service';

const MAIN = fileURLToPath(new URL('../src/main.ts', import.meta.url));

export type ProcessOptions = Partial<ServiceProcessInit>;

/** `main`: an entry of the test's own, which has an IPC channel to the test. */
export const startProcess = (options: ProcessOptions): Promise<ServiceProcess> =>
  ServiceProcess.start({ ipc: options.main !== undefined, main: MAIN, ...options });

export const keysIn = (dir: string): string => join(dir, 'keys');
