/**
 * The process entry of a declared service: `main.ts` of every service is one call.
 *
 * Contract: in a process that has set `COMPILE_ONLY` the service is loaded and not started. `ron up` does so before a first
 * start, to fill the compile cache once for all services.
 */
import type { Config, ConfigSchema, KeyTable } from '@ron/config';
import { runProcess } from '../process/process.ts';
import type { Concurrency } from '../runtime/declaration.ts';
import type { ServiceDefinition } from './define.ts';
import { startService } from './start.ts';

export interface RunInit<K extends KeyTable, D extends Concurrency, E, O, P extends object> {
  readonly name: string;
  readonly config: ConfigSchema<K>;
  /** Called with the valid configuration before the service is loaded. */
  readonly prepare?: (config: Config<K>) => void;
  /** Loads the service. A process with an invalid configuration ends before that. */
  readonly load: () => Promise<ServiceDefinition<K, D, E, O, P>>;
}

/** A property of the global object: no environment variable, which a user might set. */
export const COMPILE_ONLY = Symbol.for('ron.compile_only');

/** Runs until a stop is requested. Never returns normally: the process exits. */
export async function runService<K extends KeyTable, D extends Concurrency, E, O, P extends object>(
  init: RunInit<K, D, E, O, P>,
): Promise<void> {
  if (COMPILE_ONLY in globalThis) {
    await init.load();
    return;
  }
  await runProcess({
    name: init.name,
    schema: init.config,
    start: async (context) => {
      init.prepare?.(context.config);
      return await startService(await init.load(), context as typeof context & Partial<O>);
    },
  });
}
