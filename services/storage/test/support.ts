/** The storage service in the process of the test. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import type { MintInit } from '@ron/auth';
import { leaks } from '@ron/auth/testing';
import { loadConfig } from '@ron/config';
import { Metrics } from '@ron/telemetry';
import { Watch } from '@ron/kernel';
import { schema, startStorage, type Storage, type StorageConfig, type StorageInit } from '@ron/storage';
import { assertSameBytes, eventually, tempDir } from '@ron/testkit';
import {
  addressOf,
  authorizationFor,
  captureLog,
  metricIn,
  send,
  type Authorization,
  type Json,
  type Reply,
  type SendInit,
} from '@ron/testkit/service';

export interface TestService extends AsyncDisposable {
  readonly storage: Storage;
  /** The data directory. It does not exist in amnesia mode. */
  readonly dir: string;
  readonly url: string;
  readonly port: number;
  readonly metrics: Metrics;
  /** Log lines so far. */
  readonly lines: string[];
  send(method: string, path: string, init?: SendInit): Promise<Reply>;
  /** Sends a request with all scopes and returns the JSON of a successful answer. */
  ask(method: string, path: string): Promise<Json>;
  /** Publishes a changed configuration and applies it, like SIGHUP. */
  reload(dirs: readonly string[], flags?: readonly string[]): Promise<void>;
  /** Publishes a changed configuration without applying it. */
  publish(dirs: readonly string[], flags?: readonly string[]): void;
  /** An `Authorization` header; by default with all scopes. */
  allow(init?: Partial<MintInit>): Promise<Authorization>;
  /** Stores bytes and returns their address. */
  put(bytes: Uint8Array, headers?: Readonly<Record<string, string>>): Promise<string>;
  /** The value of one series, as a scrape shows it; 0 when it is not there. */
  metric(series: string): Promise<number>;
}

export interface ServiceInit {
  readonly flags?: readonly string[];
  /** Default: a temporary directory. */
  readonly dir?: string;
  /** Data directories below `dir`, with their options: `a@domain=x`. Default: `dir` itself. */
  readonly dirs?: readonly string[];
  readonly fs?: StorageInit['fs'];
  /** A configuration with these directories is published while the service starts. */
  readonly publishAtStart?: readonly string[];
}

export const AMNESIA = ['--amnesia.enabled=true'];
export const FAST_PATH_OFF = ['--storage.fast_path=false'];
export const ALL_SCOPES = ['storage:get', 'storage:put', 'storage:pin', 'storage:admin'] as const;

export async function startService(init: ServiceInit = {}): Promise<TestService> {
  const temp = init.dir === undefined ? await tempDir() : undefined;
  const dir = init.dir ?? join(temp!.path, 'data');
  const metrics = new Metrics('storage');
  const { log, lines } = captureLog('storage', 'info');
  const configOf = (dirs: readonly string[] | undefined, flags: readonly string[]): StorageConfig => {
    const data_dirs = dirs === undefined ? dir : dirs.map((name) => join(dir, name)).join(',');
    return loadConfig({ schema, flags: [`--data_dirs=${data_dirs}`, ...flags] });
  };
  const config = configOf(init.dirs, init.flags ?? []);
  const watch = new Watch('config', config);
  const source = {
    watch,
    get value() {
      return watch.value;
    },
  };
  const starting = startStorage({ config, source, metrics, log, fs: init.fs });
  if (init.publishAtStart !== undefined) watch.set(configOf(init.publishAtStart, init.flags ?? []));
  const storage = await starting;
  const { url } = storage;
  const allow = (wanted?: Partial<MintInit>): Promise<Authorization> =>
    authorizationFor(storage.keys, 'storage', wanted);
  const all = await allow();
  return {
    storage,
    dir,
    url,
    port: Number(new URL(url).port),
    metrics,
    lines,
    send: (method, path, more) => send(url, method, path, more),
    ask: async (method, path) => {
      const reply = await send(url, method, path, { headers: all });
      assert.ok(reply.status < 300, reply.text);
      return reply.json;
    },
    reload: async (dirs, flags = init.flags ?? []) => {
      watch.set(configOf(dirs, flags));
      await storage.reload?.();
    },
    publish: (dirs, flags = init.flags ?? []) => watch.set(configOf(dirs, flags)),
    allow,
    put: async (bytes, headers) => {
      const address = addressOf(bytes);
      const reply = await send(url, 'PUT', `/o/${address}`, { body: bytes, headers: { ...all, ...headers } });
      assert.ok(reply.status === 200 || reply.status === 201, reply.text);
      return address;
    },
    metric: async (series) => metricIn(await metrics.text(), series),
    async [Symbol.asyncDispose]() {
      leaks.shown('metrics', await metrics.text());
      await storage[Symbol.asyncDispose]();
      leaks.shown('the log', lines.join(''));
      await temp?.[Symbol.asyncDispose]();
    },
  };
}

/** Asserts that each object is served whole. */
export async function assertServed(service: Pick<TestService, 'send'>, objects: readonly Buffer[]): Promise<void> {
  for (const bytes of objects) {
    const reply = await service.send('GET', `/o/${addressOf(bytes)}`);
    assert.equal(reply.status, 200, reply.text.slice(0, 200));
    assertSameBytes(reply.body, bytes);
  }
}

/** Runs an admin task to its end and returns its progress. */
export async function runTask(service: TestService, kind: 'repair' | 'scrub' | 'compact'): Promise<Json> {
  const { id } = await service.ask('POST', `/admin/${kind}`);
  let task: Json;
  await eventually(`${kind} ends`, async () => {
    task = await service.ask('GET', `/admin/tasks/${id}`);
    return task.state !== 'running';
  });
  assert.equal(task.state, 'done', task.problem);
  return task.progress;
}
