/** What the tests of storage share: the service in this process, and clients that hide nothing. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { request, type IncomingHttpHeaders } from 'node:http';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { blake3 } from '@napi-rs/blake-hash';
import { mint, type MintInit } from '@ron/auth';
import { leaks } from '@ron/auth/testing';
import { createLog, Metrics } from '@ron/telemetry';
import { loadConfig } from '@ron/config';
import { Watch } from '@ron/kernel';
import { schema, startStorage, type Storage, type StorageConfig, type StorageInit } from '@ron/storage';

export const KIB = 1024;
export const MIB = 1024 * KIB;
const NEVER = new AbortController().signal;

/** The address of bytes, from a hash that the service does not use for large objects. */
export const addressOf = (bytes: Uint8Array): string => `b3:${blake3(bytes).toString('hex')}`;

/** Bytes that look random and are the same for the same seed. */
export function bytesOf(length: number, seed = 1): Buffer {
  const bytes = Buffer.allocUnsafe(length);
  let state = (seed * 2654435761) >>> 0 || 1;
  for (let at = 0; at < length; at += 4) {
    // xorshift32
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    if (at + 4 <= length) bytes.writeInt32LE(state | 0, at);
    else for (let rest = at; rest < length; rest += 1) bytes[rest] = state >>> (8 * (rest - at));
  }
  return bytes;
}

export interface TempDir extends AsyncDisposable {
  readonly path: string;
}

export async function tempDir(): Promise<TempDir> {
  const path = await mkdtemp(join(tmpdir(), 'ron-storage-'));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

/** What an answer holds: the test knows. */
export type Json = ReturnType<typeof JSON.parse>;

export interface TestService extends AsyncDisposable {
  readonly storage: Storage;
  /** Where its data lies; not made in amnesia. */
  readonly dir: string;
  readonly url: string;
  readonly port: number;
  readonly metrics: Metrics;
  /** Log lines so far. */
  readonly lines: string[];
  send(method: string, path: string, init?: SendInit): Promise<Reply>;
  /** Sends with all scopes, and gives the JSON of a good answer. */
  ask(method: string, path: string): Promise<Json>;
  /** As SIGHUP does after the configuration was changed. */
  reload(dirs: readonly string[], flags?: readonly string[]): Promise<void>;
  /** Only publishes a changed configuration. */
  publish(dirs: readonly string[], flags?: readonly string[]): void;
  /** An `Authorization` header with these scopes; all of them when none are named. */
  allow(init?: Partial<MintInit>): Promise<{ authorization: string }>;
  /** Stores bytes and gives their address. */
  put(bytes: Uint8Array, headers?: Readonly<Record<string, string>>): Promise<string>;
  /** The value of one series, as a scrape shows it; 0 when it is not there. */
  metric(series: string): Promise<number>;
}

export interface ServiceInit {
  readonly flags?: readonly string[];
  /** Default: a new one, removed afterwards. */
  readonly dir?: string;
  /** Several of them, below `dir`, with their options: `a@domain=x`. Default: `dir` itself. */
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
  const lines: string[] = [];
  const metrics = new Metrics('storage');
  const log = createLog({
    service: 'storage',
    level: 'info',
    sink: { write: (line) => void lines.push(line) },
  });
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
  const allow: TestService['allow'] = async (wanted = {}) => {
    const minted = await mint(
      storage.keys,
      { audience: 'storage', scopes: ALL_SCOPES, ttl_ms: 600_000, ...wanted },
      NEVER,
    );
    return { authorization: `Bearer ${minted.token}` };
  };
  const all = await allow();
  leaks.secret('the key of storage capabilities', (await storage.keys.current('storage', NEVER)).key);
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
      return JSON.parse(reply.text);
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

export function metricIn(text: string, series: string): number {
  const line = text.split('\n').find((candidate) => candidate.startsWith(`${series} `));
  return line === undefined ? 0 : Number(line.slice(series.length + 1));
}

export interface SendInit {
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array;
}

export interface Reply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
  readonly text: string;
  /** Undefined unless the answer is a problem. */
  readonly problem:
    | { readonly code: string; readonly corr_id: string; readonly retryable: boolean; readonly status: number }
    | undefined;
}

/** One request on a connection of its own. Rejects when the answer is cut. */
export function send(url: string, method: string, path: string, init: SendInit = {}): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(url);
    const req = request({ hostname, port, method, path, headers: { ...init.headers }, agent: false }, (res) => {
      const chunks: Buffer[] = [];
      res.on('data', (chunk: Buffer) => chunks.push(chunk));
      res.on('error', reject);
      res.on('end', () => resolve(replyOf(res.statusCode!, res.headers, Buffer.concat(chunks))));
    });
    // A refusal may come while the body is still being sent: then the answer counts, not the broken pipe.
    req.on('error', (error) => void setTimeout(reject, 50, error));
    req.end(init.body);
  });
}

export function replyOf(status: number, headers: IncomingHttpHeaders, body: Buffer): Reply {
  const text = body.toString();
  const isProblem = headers['content-type'] === 'application/problem+json' && text !== '';
  if (isProblem) leaks.shown('a refusal', text);
  return { status, headers, body, text, problem: isProblem ? JSON.parse(text) : undefined };
}

/** What every refusal must show. */
export function assertRefusal(reply: Reply, status: number, code: string): void {
  assert.equal(reply.status, status, reply.text);
  assert.equal(reply.headers['content-type'], 'application/problem+json');
  assert.equal(reply.problem?.code, code);
  assert.equal(reply.problem?.status, status);
  assert.equal(reply.problem?.corr_id, reply.headers['x-corr-id']);
  const waits = status === 429 || status === 503;
  assert.equal(reply.headers['retry-after'] !== undefined, waits, 'Retry-After exactly on 429 and 503');
}

/** A socket that remembers everything it was sent. */
export class RawClient {
  readonly socket: Socket;
  received = Buffer.alloc(0);
  closed = false;

  constructor(port: number) {
    this.socket = connect({ port, host: '127.0.0.1' });
    this.socket.on('data', (bytes: Buffer) => (this.received = Buffer.concat([this.received, bytes])));
    this.socket.on('error', () => undefined);
    this.socket.on('close', () => (this.closed = true));
  }

  static async open(port: number): Promise<RawClient> {
    const client = new RawClient(port);
    await once(client.socket, 'connect');
    return client;
  }

  /** Sends a request line and headers; `Host` is added. */
  head(method: string, path: string, headers: Readonly<Record<string, string | number>> = {}): void {
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    this.socket.write(`${method} ${path} HTTP/1.1\r\nHost: localhost\r\n${lines.join('')}\r\n`, 'latin1');
  }

  get text(): string {
    return this.received.toString('latin1');
  }

  /** Everything up to the end of the connection. */
  async rest(): Promise<string> {
    if (!this.closed) await once(this.socket, 'close');
    return this.text;
  }

  /** Until what was received matches. */
  async until(pattern: RegExp): Promise<RegExpExecArray> {
    for (;;) {
      const match = pattern.exec(this.text);
      if (match !== null) return match;
      if (this.closed) throw new Error(`closed before ${pattern}: ${JSON.stringify(this.text.slice(0, 500))}`);
      await Promise.race([once(this.socket, 'data'), once(this.socket, 'close')]);
    }
  }

  destroy(): void {
    this.socket.destroy();
  }
}

/** Waits until `holds`; looks often, gives up after 20 seconds. */
export async function eventually(what: string, holds: () => boolean | Promise<boolean>): Promise<void> {
  const until_ms = performance.now() + 20_000;
  while (!(await holds())) {
    if (performance.now() > until_ms) throw new Error(`never happened: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
