/** Shared by the tests of kms: the service in this process, and a client that returns every detail of a response. */
import assert from 'node:assert/strict';
import { Agent } from 'node:http';
import { join } from 'node:path';
import type { MintInit } from '@ron/auth';
import { leaks } from '@ron/auth/testing';
import { Metrics } from '@ron/telemetry';
import { loadConfig } from '@ron/config';
import { schema, startKms, type Kms, type KmsInit } from '@ron/kms';
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

/** The payload of most tests: a hash, in hex. */
export const B3 = 'af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262';

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
  allow(init?: Partial<MintInit>): Promise<Authorization>;
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
  readonly store?: KmsInit['store'];
  readonly env?: KmsInit['env'];
}

export const AMNESIA = ['--amnesia.enabled=true'];
export const KEK = '00'.repeat(32);

/** A busy machine takes seconds to create a key. Tests of the deadline itself set it. */
const longDeadline = (flags: readonly string[]): string[] =>
  flags.some((flag) => flag.startsWith('--kms.sign_deadline=')) ? [] : ['--kms.sign_deadline=30s'];

export async function startService(init: StartInit = {}): Promise<TestKms> {
  const temp = init.dir === undefined ? await tempDir() : undefined;
  const dir = init.dir ?? join(temp!.path, 'data');
  const metrics = new Metrics('kms');
  const { log, lines } = captureLog('kms');
  const { flags = [] } = init;
  const config = loadConfig({ schema, flags: [`--data_dir=${dir}`, ...longDeadline(flags), ...flags] });
  const { backend, fs, store, env = { RON_KEK: KEK } } = init;
  const kms = await startKms({
    config,
    metrics,
    log,
    env,
    ...(backend && { backend }),
    ...(fs && { fs }),
    ...(store && { store }),
  });
  const { url } = kms;
  const agent = new Agent({ keepAlive: true, maxSockets: 1024 });
  const allow = (wanted?: Partial<MintInit>): Promise<Authorization> => authorizationFor(kms.keys, 'kms', wanted);
  const all = await allow();
  const sendTo: TestKms['send'] = async (method, path, more) =>
    noteSecrets(await send(url, method, path, { agent, ...more }));
  const post: TestKms['post'] = (path, body, headers = all) => {
    const text = body === undefined ? undefined : JSON.stringify(body);
    const type = body === undefined ? {} : { 'content-type': 'application/json' };
    return sendTo('POST', `/v1/kms${path}`, { headers: { ...type, ...headers }, ...(text && { body: text }) });
  };
  return {
    kms,
    dir,
    url,
    metrics,
    lines,
    post,
    get: (path, headers = all) => sendTo('GET', `/v1/kms${path}`, { headers }),
    send: sendTo,
    allow,
    create: async (alg, { tenant = 'acme', purpose = 'docs', policy } = {}) => {
      const reply = await post('/keys', { tenant, purpose, alg, ...(policy !== undefined && { policy }) });
      assert.equal(reply.status, 201, reply.text);
      return reply.json.kid as string;
    },
    metric: async (series) => metricIn(await metrics.text(), series),
    async [Symbol.asyncDispose]() {
      agent.destroy();
      leaks.shown('metrics', await metrics.text());
      await kms[Symbol.asyncDispose]();
      leaks.shown('the log', lines.join(''));
      await temp?.[Symbol.asyncDispose]();
    },
  };
}

/** Registers the secrets that a successful answer contains: they must not appear anywhere else. */
export function noteSecrets(reply: Reply): Reply {
  if (reply.status >= 400) return reply;
  const { plaintext_key_b64, secret_b64 } = (reply.json ?? {}) as Record<string, unknown>;
  for (const secret of [plaintext_key_b64, secret_b64]) {
    const bytes = typeof secret === 'string' ? Buffer.from(secret, 'base64') : Buffer.alloc(0);
    if (bytes.length >= 16) leaks.secret('a secret of a caller', bytes);
  }
  return reply;
}

export const path = (kid: string): string => encodeURIComponent(kid);
