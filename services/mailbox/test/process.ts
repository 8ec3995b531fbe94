/** The mailbox service as a process. */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { authorizationFrom, ServiceProcess, type Authorization, type ServiceProcessInit } from '@ron/testkit/service';

const MAIN = fileURLToPath(new URL('../src/main.ts', import.meta.url));

export interface MailboxProcess {
  readonly process: ServiceProcess;
  /** A capability for all scopes. */
  readonly headers: Authorization;
}

/** Starts mailbox with its data and keys in `dir`. */
export async function startProcess(dir: string, init: Partial<ServiceProcessInit> = {}): Promise<MailboxProcess> {
  const { flags = [], ...rest } = init;
  const key_file = join(dir, 'keys');
  const headers = await authorizationFrom(key_file, 'mailbox');
  const process = await ServiceProcess.start({
    main: MAIN,
    flags: [`--data_dir=${join(dir, 'data')}`, `--auth.key_file=${key_file}`, ...flags],
    ...rest,
  });
  return { process, headers };
}
