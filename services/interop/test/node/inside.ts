/** Interop in the process of the test, started with the flags of a process: open to faults from inside. */
import { leaks } from '@ron/auth/testing';
import { loadConfig } from '@ron/config';
import type { FileSystem } from '@ron/log';
import { Metrics } from '@ron/telemetry';
import { captureLog, metricIn } from '@ron/testkit/service';
import { schema } from '../../src/config.ts';
import { startInterop, type Interop } from '../../src/service.ts';

export interface InsideInit {
  /** Default: the real file system. */
  readonly fs?: FileSystem;
  /** Called when a critical task stays down. */
  readonly onFatal?: (kind: string) => void;
}

export interface InsideInterop extends AsyncDisposable {
  readonly interop: Interop;
  metric(series: string): Promise<number>;
}

export async function startInside(flags: readonly string[], init: InsideInit): Promise<InsideInterop> {
  const metrics = new Metrics('interop');
  const { log, lines } = captureLog('interop', 'info');
  const config = loadConfig({ schema, env: {}, flags });
  const interop = await startInterop({ config, metrics, log, env: {}, ...init });
  return {
    interop,
    metric: async (series) => metricIn(await metrics.text(), series),
    async [Symbol.asyncDispose]() {
      leaks.shown('metrics', await metrics.text());
      await interop[Symbol.asyncDispose]();
      leaks.shown('the log', lines.join(''));
    },
  };
}
