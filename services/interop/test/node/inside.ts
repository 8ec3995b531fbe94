/**
 * Services of a node in the process of the test: cheaper to start than processes, and open to faults from inside.
 *
 * They take the flags of a process. `kill` of such a service is an orderly end: for kill -9 use a process.
 */
import { leaks } from '@ron/auth/testing';
import { loadConfig } from '@ron/config';
import { schema as kmsSchema, startKms } from '@ron/kms';
import type { FileSystem } from '@ron/log';
import { schema as mailboxSchema, startMailbox } from '@ron/mailbox';
import { schema as passportSchema, startPassport } from '@ron/passport';
import { schema as storageSchema, startStorage } from '@ron/storage';
import { Metrics } from '@ron/telemetry';
import { captureLog, metricIn } from '@ron/testkit/service';
import { schema } from '../../src/config.ts';
import { startInterop, type Interop } from '../../src/service.ts';
import type { NodeService } from './node.ts';

export interface InsideInit {
  readonly flags: readonly string[];
  readonly fs?: FileSystem | undefined;
  /** Called when a critical task stays down. */
  readonly onFatal?: ((kind: string) => void) | undefined;
}

export interface InsideService extends AsyncDisposable {
  readonly url: string;
  /** Log lines so far. */
  readonly lines: readonly string[];
  metric(series: string): Promise<number>;
  /** Only for interop. */
  readonly interop?: Interop;
}

/** How a service is started with its flags. */
const STARTS = {
  kms: (flags: string[], common: Common) => startKms({ ...common, config: loadConfig({ schema: kmsSchema, flags }) }),
  passport: (flags: string[], common: Common) =>
    startPassport({ ...common, config: loadConfig({ schema: passportSchema, flags }) }),
  storage: (flags: string[], common: Common) =>
    startStorage({ ...common, config: loadConfig({ schema: storageSchema, flags }) }),
  mailbox: (flags: string[], common: Common) =>
    startMailbox({ ...common, config: loadConfig({ schema: mailboxSchema, flags }) }),
  interop: (flags: string[], common: Common) => startInterop({ ...common, config: loadConfig({ schema, flags }) }),
} as const;

interface Common {
  readonly metrics: Metrics;
  readonly log: ReturnType<typeof captureLog>['log'];
  readonly env: Readonly<Record<string, string>>;
  readonly fs?: FileSystem;
  readonly onFatal?: (kind: string) => void;
}

export async function startInside(name: NodeService, init: InsideInit): Promise<InsideService> {
  const metrics = new Metrics(name);
  const { log, lines } = captureLog(name, 'info');
  const service = await STARTS[name]([...init.flags], {
    metrics,
    log,
    env: {},
    ...(init.fs !== undefined && { fs: init.fs }),
    ...(init.onFatal !== undefined && { onFatal: init.onFatal }),
  });
  return {
    url: service.url,
    lines,
    metric: async (series) => metricIn(await metrics.text(), series),
    ...('sentinel' in service && { interop: service as Interop }),
    async [Symbol.asyncDispose]() {
      leaks.shown('metrics', await metrics.text());
      await service[Symbol.asyncDispose]();
      leaks.shown('the log', lines.join(''));
    },
  };
}
