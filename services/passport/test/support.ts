/** Shared by the tests of passport: the service in this process with its own root key, and a client. */
import { join } from 'node:path';
import { FileKeySource, mint, type MintInit } from '@ron/auth';
import { leaks } from '@ron/auth/testing';
import { Metrics } from '@ron/telemetry';
import { loadConfig } from '@ron/config';
import { NEVER } from '@ron/kernel';
import { schema, startPassport, type Passport } from '@ron/passport';
import { scopesOf } from '@ron/proto';
import { tempDir } from '@ron/testkit';
import { captureLog, send, type Reply } from '@ron/testkit/service';

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
  const temp = init.dir === undefined ? await tempDir() : undefined;
  const dir = init.dir ?? temp!.path;
  const metrics = new Metrics('passport');
  const { log, lines } = captureLog('passport');
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
  return {
    passport,
    url,
    dir,
    lines,
    metrics,
    post: (path, body, token = all) => {
      const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
      return send(url, 'POST', `/v1/passport/${path}`, { headers, body: JSON.stringify(body) });
    },
    get: (path) => send(url, 'GET', path),
    mint: mintOne,
    async [Symbol.asyncDispose]() {
      leaks.shown('metrics', await metrics.text());
      await passport[Symbol.asyncDispose]();
      leaks.shown('the log', lines.join(''));
      await temp?.[Symbol.asyncDispose]();
    },
  };
}
