/** Shared by the tests of live fill: an HTTPS origin with its own authority on loopback, and an edge that may fetch from it. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Authority, HOST, hostile, type Hostile, type HostileInit, type Script } from '@ron/egress/testing';
import { tempDir } from '@ron/testkit';
import type { Reply } from '@ron/testkit/service';
import { startService, type TestEdge, type TestInit } from '../support.ts';

export { HOST, reset, type Hostile, type Script } from '@ron/egress/testing';

export const authority = new Authority();
const good = authority.issue({ names: `DNS:${HOST},DNS:other.test` });
const dir = await tempDir();
const ca_file = join(dir.path, 'ca.pem');
writeFileSync(ca_file, authority.pem);
process.on('exit', () => authority[Symbol.dispose]());

/** Removes the files of this module. Call it in `after`. */
export const removeFiles = async (): Promise<void> => await dir[Symbol.asyncDispose]();

/** An origin with a valid certificate by default. */
export const originOf = (script: Script, init: Partial<HostileInit> = {}): Promise<Hostile> =>
  hostile(script, { tls: good, ...init });

export const FRESH = 'cache-control: max-age=60';

/** A complete answer that edge accepts. A header that is given replaces the default one. */
export function answer(body: string, ...headers: string[]): string {
  const named = new Set(headers.map((line) => line.split(':')[0]));
  const lines = [`content-length: ${body.length}`, 'content-type: image/png', 'etag: "1"'];
  return ['HTTP/1.1 200 OK', ...lines.filter((line) => !named.has(line.split(':')[0])), ...headers, '', body].join(
    '\r\n',
  );
}

export const statusAnswer = (status: number, ...headers: string[]): string =>
  [`HTTP/1.1 ${status} Status`, 'content-length: 0', ...headers, '', ''].join('\r\n');

export interface Filling extends TestEdge {
  /** GET of `path` at the origin. */
  get(path: string, headers?: Record<string, string>): Promise<Reply>;
  /** The path of an asset of the origin. */
  pathOf(path: string): string;
}

export interface FillingInit extends TestInit {
  /** Default: 127.0.0.1. */
  readonly lookup?: (hostname: string) => Promise<readonly string[]>;
}

/** The flags with which edge may fetch from the origin. A flag in `more` replaces the default one. */
export function flagsFor({ port }: Pick<Hostile, 'port'>, more: readonly string[] = []): string[] {
  const flags = [
    '--edge.mode=live',
    `--fill.allow=https://${HOST}:${port}`,
    '--fill.networks=127.0.0.0/8',
    `--fill.ca_file=${ca_file}`,
    '--ingress.rps_limit=100000',
    ...more,
  ];
  return [...new Map(flags.map((flag) => [flag.split('=')[0], flag])).values()];
}

export async function startFilling(origin: Pick<Hostile, 'port'>, init: FillingInit = {}): Promise<Filling> {
  const { flags = [], lookup = () => Promise.resolve(['127.0.0.1']), ...rest } = init;
  const edge = await startService({ ...rest, flags: flagsFor(origin, flags), network: { lookup } });
  const pathOf = (path: string): string => `/edge/assets/live/${HOST}:${origin.port}${path}`;
  return { ...edge, pathOf, get: (path, headers = {}) => edge.send('GET', pathOf(path), { headers }) };
}

/** Asserts status, code and reason of a refusal. */
export function refused(reply: Reply, status: number, code: string, reason?: string): void {
  const problem = reply.status < 400 ? {} : (JSON.parse(reply.text) as { code?: string; reason?: string });
  assert.deepEqual([reply.status, problem.code, problem.reason], [status, code, reason], reply.text);
  assert.equal(reply.headers['x-reason'], reason);
}
