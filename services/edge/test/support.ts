/** Shared by the tests of edge: the service in this process, and a client. */
import { join } from 'node:path';
import type { MintInit } from '@ron/auth';
import { leaks } from '@ron/auth/testing';
import { loadConfig } from '@ron/config';
import { schema, startEdge, type Edge, type EdgeConfig, type EdgeInit } from '@ron/edge';
import { Watch } from '@ron/kernel';
import { Metrics } from '@ron/telemetry';
import { tempDir } from '@ron/testkit';
import {
  authorizationFor,
  captureLog,
  metricIn,
  send,
  type Authorization,
  type Reply,
  type SendInit,
} from '@ron/testkit/service';

export interface TestEdge extends AsyncDisposable {
  readonly edge: Edge;
  /** The data directory. It does not exist in amnesia mode. */
  readonly dir: string;
  readonly url: string;
  readonly port: number;
  readonly metrics: Metrics;
  /** Log lines so far. */
  readonly lines: string[];
  /** Without a capability. */
  send(method: string, path: string, init?: SendInit): Promise<Reply>;
  /** With a capability for all scopes. `body` is sent as JSON. */
  call(method: string, path: string, body?: unknown): Promise<Reply>;
  /** An `Authorization` header; by default with all scopes. */
  allow(init?: Partial<MintInit>): Promise<Authorization>;
  /** Publishes a changed configuration and applies it, like SIGHUP. */
  reload(flags: readonly string[]): Promise<void>;
  /** The value of one series, as a scrape shows it; 0 when it is not there. */
  metric(series: string): Promise<number>;
}

export type TestInit = Omit<Partial<EdgeInit>, 'config' | 'metrics' | 'log'> & {
  readonly flags?: readonly string[];
  /** Default: a temporary directory. */
  readonly dir?: string;
};

export const AMNESIA = ['--amnesia.enabled=true'];

export async function startService(init: TestInit = {}): Promise<TestEdge> {
  const { flags = [], dir: given, ...overrides } = init;
  const temp = given === undefined ? await tempDir() : undefined;
  const dir = given ?? join(temp!.path, 'data');
  const metrics = new Metrics('edge');
  const { log, lines } = captureLog('edge');
  const configOf = (more: readonly string[]): EdgeConfig =>
    loadConfig({ schema, flags: [`--data_dir=${dir}`, ...more] });
  const watch = new Watch('config', configOf(flags));
  const source = {
    watch,
    get value() {
      return watch.value;
    },
  };
  const edge = await startEdge({ source, env: {}, ...overrides, config: watch.value, metrics, log });
  const { url } = edge;
  const allow = (wanted?: Partial<MintInit>): Promise<Authorization> => authorizationFor(edge.keys, 'edge', wanted);
  const all = await allow();
  return {
    edge,
    dir,
    url,
    port: Number(new URL(url).port),
    metrics,
    lines,
    send: (method, path, more) => send(url, method, path, more),
    call: (method, path, body) => {
      if (body === undefined) return send(url, method, path, { headers: all });
      const headers = { ...all, 'content-type': 'application/json' };
      return send(url, method, path, { headers, body: JSON.stringify(body) });
    },
    allow,
    reload: async (next) => {
      watch.set(configOf(next));
      await edge.reload?.();
    },
    metric: async (series) => metricIn(await metrics.text(), series),
    async [Symbol.asyncDispose]() {
      leaks.shown('metrics', await metrics.text());
      await edge[Symbol.asyncDispose]();
      leaks.shown('the log', lines.join(''));
      await temp?.[Symbol.asyncDispose]();
    },
  };
}
