/** A service in the process of the test, with a data directory of its own, and a client. */
import { join } from 'node:path';
import type { KeySource, MintInit } from '@ron/auth';
import { leaks } from '@ron/auth/testing';
import { Watch } from '@ron/kernel';
import type { Service } from '@ron/proto';
import { Metrics, type Log } from '@ron/telemetry';
import { tempDir } from '../temp-dir.ts';
import { authorizationFor, type Authorization } from './capabilities.ts';
import { captureLog } from './captured-log.ts';
import { send, type Reply, type SendInit } from './http.ts';
import { metricIn } from './metrics.ts';

/** The part of a running service that its tests use. */
export interface StartedService extends AsyncDisposable {
  readonly url: string;
  readonly keys: KeySource;
  reload?(): Promise<void>;
}

export interface InProcess<S> extends AsyncDisposable {
  readonly service: S;
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

export interface InProcessInit<C, S> {
  readonly name: Service;
  readonly flags: readonly string[];
  /** Default: a temporary directory. */
  readonly dir: string | undefined;
  /** Loads a configuration from flags. */
  readonly load: (flags: readonly string[]) => C;
  readonly start: (init: {
    readonly config: C;
    readonly source: { readonly value: C; readonly watch: Watch<C> };
    readonly metrics: Metrics;
    readonly log: Log;
  }) => Promise<S>;
}

export async function startInProcess<C, S extends StartedService>(init: InProcessInit<C, S>): Promise<InProcess<S>> {
  const { name, flags, load, start } = init;
  const temp = init.dir === undefined ? await tempDir() : undefined;
  const dir = init.dir ?? join(temp!.path, 'data');
  const metrics = new Metrics(name);
  const { log, lines } = captureLog(name);
  const configOf = (more: readonly string[]): C => load([`--data_dir=${dir}`, ...more]);
  const watch = new Watch('config', configOf(flags));
  const source = {
    watch,
    get value() {
      return watch.value;
    },
  };
  const service = await start({ config: watch.value, source, metrics, log });
  const { url } = service;
  const allow = (wanted?: Partial<MintInit>): Promise<Authorization> => authorizationFor(service.keys, name, wanted);
  const all = await allow();
  return {
    service,
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
      await service.reload?.();
    },
    metric: async (series) => metricIn(await metrics.text(), series),
    async [Symbol.asyncDispose]() {
      leaks.shown('metrics', await metrics.text());
      await service[Symbol.asyncDispose]();
      leaks.shown('the log', lines.join(''));
      await temp?.[Symbol.asyncDispose]();
    },
  };
}
