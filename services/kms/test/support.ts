/** Shared by the tests of kms: the service in this process, and a client that returns every detail of a response. */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { Agent, request, type IncomingHttpHeaders } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { mint, type MintInit } from '@ron/auth';
import { leaks } from '@ron/auth/testing';
import { createLog, Metrics } from '@ron/telemetry';
import { loadConfig } from '@ron/config';
import { schema, startKms, type Kms, type KmsInit } from '@ron/kms';
import { scopesOf } from '@ron/proto';

export const NEVER = new AbortController().signal;
/** The payload of most tests: a hash, in hex. */
export const B3 = 'af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262';

export interface TempDir extends AsyncDisposable {
  readonly path: string;
}

export async function tempDir(): Promise<TempDir> {
  const path = await mkdtemp(join(tmpdir(), 'ron-kms-'));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

export interface Reply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  /** The response as JSON, of any shape. */
  // oxlint-disable-next-line typescript/no-explicit-any -- tests read arbitrary members
  readonly body: any;
}

export interface TestKms extends AsyncDisposable {
  readonly kms: Kms;
  readonly dir: string;
  readonly url: string;
  readonly metrics: Metrics;
  /** Log lines so far. */
  readonly lines: string[];
  /** With a capability for all scopes, unless headers are given. `path` is below /v1/kms. */
  post(path: string, body?: unknown, headers?: Readonly<Record<string, string>>): Promise<Reply>;
  get(path: string, headers?: Readonly<Record<string, string>>): Promise<Reply>;
  /** Any path. */
  send(method: string, path: string, init?: SendInit): Promise<Reply>;
  allow(init?: Partial<MintInit>): Promise<{ authorization: string }>;
  /** Creates a key and returns the kid of its first version. */
  create(alg: string, init?: { tenant?: string; purpose?: string; policy?: unknown }): Promise<string>;
  metric(series: string): Promise<number>;
}

export interface StartInit {
  readonly flags?: readonly string[];
  /** Default: a new directory, removed afterwards. */
  readonly dir?: string;
  readonly backend?: KmsInit['backend'];
  readonly fs?: KmsInit['fs'];
  readonly env?: KmsInit['env'];
}

export const AMNESIA = ['--amnesia.enabled=true'];
export const KEK = '00'.repeat(32);

export async function startService(init: StartInit = {}): Promise<TestKms> {
  const temp = init.dir === undefined ? await tempDir() : undefined;
  const dir = init.dir ?? join(temp!.path, 'data');
  const lines: string[] = [];
  const metrics = new Metrics('kms');
  const log = createLog({ service: 'kms', level: 'debug', sink: { write: (line) => void lines.push(line) } });
  const config = loadConfig({ schema, flags: [`--data_dir=${dir}`, ...(init.flags ?? [])] });
  const { backend, fs, env = { RON_KEK: KEK } } = init;
  const kms = await startKms({ config, metrics, log, env, ...(backend && { backend }), ...(fs && { fs }) });
  const { url } = kms;
  const agent = new Agent({ keepAlive: true, maxSockets: 1024 });
  const allow: TestKms['allow'] = async (wanted = {}) => {
    const all = { audience: 'kms', scopes: scopesOf('kms'), ttl_ms: 600_000 } as const;
    const { token } = await mint(kms.keys, { ...all, ...wanted }, NEVER);
    return { authorization: `Bearer ${token}` };
  };
  const all = await allow();
  leaks.secret('the key of kms capabilities', (await kms.keys.current('kms', NEVER)).key);
  const post: TestKms['post'] = (path, body, headers = all) => {
    const text = body === undefined ? undefined : JSON.stringify(body);
    const type = body === undefined ? {} : { 'content-type': 'application/json' };
    return send(url, 'POST', `/v1/kms${path}`, {
      headers: { ...type, ...headers },
      ...(text && { body: text }),
      agent,
    });
  };
  return {
    kms,
    dir,
    url,
    metrics,
    lines,
    post,
    get: (path, headers = all) => send(url, 'GET', `/v1/kms${path}`, { headers, agent }),
    send: (method, path, more) => send(url, method, path, { agent, ...more }),
    allow,
    create: async (alg, { tenant = 'acme', purpose = 'docs', policy } = {}) => {
      const reply = await post('/keys', { tenant, purpose, alg, ...(policy !== undefined && { policy }) });
      assert.equal(reply.status, 201, reply.text);
      return reply.body.kid as string;
    },
    metric: async (series) => {
      const line = (await metrics.text()).split('\n').find((each) => each.startsWith(`${series} `));
      return line === undefined ? 0 : Number(line.slice(series.length + 1));
    },
    async [Symbol.asyncDispose]() {
      agent.destroy();
      leaks.shown('metrics', await metrics.text());
      await kms[Symbol.asyncDispose]();
      leaks.shown('the log', lines.join(''));
      await temp?.[Symbol.asyncDispose]();
    },
  };
}

export interface SendInit {
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array;
  readonly agent?: Agent;
}

export function send(url: string, method: string, path: string, init: SendInit = {}): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(url);
    const agent = init.agent ?? false;
    const req = request({ hostname, port, method, path, headers: { ...init.headers }, agent }, (res) => {
      const chunks: Buffer[] = [];
      res.on('data', (chunk: Buffer) => chunks.push(chunk));
      res.on('error', reject);
      res.on('end', () => resolve(replyOf(res.statusCode!, res.headers, Buffer.concat(chunks))));
    });
    // A refusal may arrive while the body is still being sent: then the response counts, not the broken pipe.
    req.on('error', (error) => void setTimeout(reject, 50, error));
    req.end(init.body);
  });
}

function replyOf(status: number, headers: IncomingHttpHeaders, bytes: Buffer): Reply {
  const text = bytes.toString();
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    body = undefined;
  }
  noteSecrets(status, text, body);
  return { status, headers, text, body };
}

/** Secrets in a successful response must not appear elsewhere, and a refusal must contain none. */
function noteSecrets(status: number, text: string, body: unknown): void {
  if (status >= 400) return leaks.shown('a refusal', text);
  const { plaintext_key_b64, secret_b64 } = (body ?? {}) as Record<string, unknown>;
  for (const secret of [plaintext_key_b64, secret_b64]) {
    const bytes = typeof secret === 'string' ? Buffer.from(secret, 'base64') : Buffer.alloc(0);
    if (bytes.length >= 16) leaks.secret('a secret of a caller', bytes);
  }
}

/** Asserts the properties of every refusal. */
export function assertRefusal(reply: Reply, status: number, code: string): void {
  assert.equal(reply.status, status, reply.text);
  assert.equal(reply.headers['content-type'], 'application/problem+json');
  assert.equal(reply.body.code, code, reply.text);
  assert.equal(reply.body.corr_id, reply.headers['x-corr-id']);
  const waits = status === 429 || status === 503;
  assert.equal(reply.headers['retry-after'] !== undefined, waits, 'Retry-After exactly on 429 and 503');
}

/** Polls until `holds` is true; fails after 20 seconds. */
export async function eventually(what: string, holds: () => boolean | Promise<boolean>): Promise<void> {
  const until_ms = performance.now() + 20_000;
  while (!(await holds())) {
    if (performance.now() > until_ms) throw new Error(`never happened: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

export const path = (kid: string): string => encodeURIComponent(kid);
