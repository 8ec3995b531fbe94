/** The index service as a process. */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { authorizationFrom, ServiceProcess, type Reply, type ServiceProcessInit } from '@ron/testkit/service';

const MAIN = fileURLToPath(new URL('../src/main.ts', import.meta.url));
const REPORT_MODULES = fileURLToPath(new URL('./report-modules.ts', import.meta.url));

export interface IndexProcess {
  readonly process: ServiceProcess;
  /** With a capability for all scopes. `body` is sent as JSON. */
  readonly call: (method: string, path: string, body?: unknown) => Promise<Reply>;
}

/** Starts index with its data and keys in `dir`. `reports`: it logs each module of a DHT library that it loads. */
export async function startProcess(
  dir: string,
  init: Partial<ServiceProcessInit> & { readonly reports?: boolean } = {},
): Promise<IndexProcess> {
  const { flags = [], reports = false, ...rest } = init;
  const key_file = join(dir, 'keys');
  const headers = await authorizationFrom(key_file, 'index');
  const process = await ServiceProcess.start({
    main: MAIN,
    flags: [`--data_dir=${join(dir, 'data')}`, `--auth.key_file=${key_file}`, ...flags],
    ...(reports && { node_flags: ['--import', REPORT_MODULES] }),
    ...rest,
  });
  return {
    process,
    call: (method, path, body) =>
      process.send(
        method,
        path,
        body === undefined
          ? { headers }
          : { headers: { ...headers, 'content-type': 'application/json' }, body: JSON.stringify(body) },
      ),
  };
}
