/** Shared by the tests of passport: the service in this process with its own root key, and a client. */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { FileKeySource, mint, type MintInit } from '@ron/auth';
import { leaks } from '@ron/auth/testing';
import { createLog, Metrics } from '@ron/telemetry';
import { loadConfig } from '@ron/config';
import { schema, startPassport, type Passport } from '@ron/passport';
import { scopesOf } from '@ron/proto';

export const NEVER = new AbortController().signal;

export interface Reply {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  // oxlint-disable-next-line typescript/no-explicit-any -- tests read arbitrary members
  readonly body: any;
}

export interface TestPassport extends AsyncDisposable {
  readonly passport: Passport;
  readonly url: string;
  readonly dir: string;
  /** Log lines so far. */
  readonly lines: string[];
  readonly metrics: Metrics;
  /** With a capability for all scopes, unless another is given. */
  post(path: string, body: unknown, token?: string): Promise<Reply>;
  get(path: string): Promise<Reply>;
  mint(init?: Partial<MintInit>): Promise<string>;
}

export async function startService(init: { flags?: readonly string[]; dir?: string } = {}): Promise<TestPassport> {
  const made = init.dir === undefined ? await mkdtemp(join(tmpdir(), 'ron-passport-')) : undefined;
  const dir = init.dir ?? made!;
  const lines: string[] = [];
  const metrics = new Metrics('passport');
  const log = createLog({ service: 'passport', level: 'debug', sink: { write: (line) => void lines.push(line) } });
  const key_file = join(dir, 'keys');
  await (await FileKeySource.open({ path: key_file }, NEVER)).close();
  const flags = [`--data_dir=${join(dir, 'data')}`, `--auth.key_file=${key_file}`, ...(init.flags ?? [])];
  const passport = await startPassport({ config: loadConfig({ schema, flags }), metrics, log, env: {} });
  const { url } = passport;
  const mintOne: TestPassport['mint'] = async (wanted = {}) => {
    const all = {
      audience: 'passport',
      scopes: scopesOf('passport'),
      ttl_ms: 86_400_000,
      subject: 'root',
      epoch: Date.now(),
    } as const;
    return (await mint(passport.keys, { ...all, ...wanted }, NEVER)).token;
  };
  const all = await mintOne();
  for (const audience of ['passport', 'storage', 'kms'] as const)
    leaks.secret(`the key of ${audience} capabilities`, (await passport.keys.current(audience, NEVER)).key);
  const reply = async (response: Response): Promise<Reply> => {
    const text = await response.text();
    if (!response.ok) leaks.shown('a refusal', text);
    const body: unknown = text === '' ? undefined : JSON.parse(text);
    return { status: response.status, headers: response.headers, text, body };
  };
  return {
    passport,
    url,
    dir,
    lines,
    metrics,
    post: async (path, body, token = all) => {
      const headers = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' };
      return await reply(
        await fetch(`${url}/v1/passport/${path}`, { method: 'POST', headers, body: JSON.stringify(body) }),
      );
    },
    get: async (path) => await reply(await fetch(`${url}${path}`)),
    mint: mintOne,
    async [Symbol.asyncDispose]() {
      leaks.shown('metrics', await metrics.text());
      await passport[Symbol.asyncDispose]();
      leaks.shown('the log', lines.join(''));
      if (made !== undefined) await rm(made, { recursive: true, force: true });
    },
  };
}

/** Asserts the properties of every refusal. */
export function assertRefusal(reply: Reply, status: number, code: string): void {
  assert.equal(reply.status, status, reply.text);
  assert.equal(reply.headers.get('content-type'), 'application/problem+json');
  assert.equal(reply.body.code, code, reply.text);
}
