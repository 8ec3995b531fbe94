/** Upstreams on Unix sockets whose answers a test decides, and the calls of interop to them. */
import { mkdir, writeFile } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { MemoryKeySource, mint } from '@ron/auth';
import { loadConfig } from '@ron/config';
import { NEVER } from '@ron/kernel';
import { createServer, type IncomingMessage, type ServerResponse } from '@ron/kernel/http';
import { decodeBatch, SEND_BATCH, type OutgoingMessage, type SendResult } from '@ron/proto';
import { ServiceRuntime } from '@ron/service';
import { Metrics } from '@ron/telemetry';
import { tempDirFor, type After } from '@ron/testkit';
import { addressOf, captureLog, metricIn } from '@ron/testkit/service';
import { concurrency } from '../../src/concurrency.ts';
import { schema } from '../../src/config.ts';
import type { InteropEvent } from '../../src/events.ts';
import { newPolicyMeta } from '../../src/policy-meta.ts';
import type { MailboxAccess } from '../../src/upstreams/mailbox-access.ts';
import { openUpstreams, type Upstreams } from '../../src/upstreams/open-upstreams.ts';

export type Answer = (request: IncomingMessage, body: Buffer, response: ServerResponse) => void;

export interface FakeUpstream {
  readonly path: string;
  /** Answers every request. Replace it at any time. */
  answer: Answer;
  /** Method and path of each request. */
  readonly requests: string[];
  readonly tokens: string[];
  connections: number;
  /** Closes the socket, and breaks all connections. */
  stop(): Promise<void>;
}

export async function fakeUpstream(t: After, path: string): Promise<FakeUpstream> {
  const sockets = new Set<Socket>();
  const server = createServer((request, response) => {
    const pieces: Buffer[] = [];
    request.on('data', (piece: Buffer) => pieces.push(piece));
    request.on('end', () => {
      fake.requests.push(`${request.method} ${request.url}`);
      fake.tokens.push(request.headers.authorization ?? '');
      fake.answer(request, Buffer.concat(pieces), response);
    });
  });
  server.on('connection', (socket: Socket) => {
    fake.connections += 1;
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  const stop = async (): Promise<void> => {
    for (const socket of sockets) socket.destroy();
    if (server.listening) await new Promise((resolve) => void server.close(resolve));
  };
  const fake: FakeUpstream = { path, answer: storesAll, requests: [], tokens: [], connections: 0, stop };
  await new Promise<void>((resolve) => void server.listen(path, resolve));
  t.after(stop);
  return fake;
}

export function reply(response: ServerResponse, status: number, body: unknown): void {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  response.writeHead(status, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) });
  response.end(text);
}

/** A refusal, as services write it. */
export function refuse(response: ServerResponse, status: number, code: string): void {
  const text = JSON.stringify({ code, status, detail: 'refused by the test' });
  response.writeHead(status, { 'Content-Type': 'application/problem+json', 'Content-Length': Buffer.byteLength(text) });
  response.end(text);
}

/** The results of a mailbox that stores every message. */
export const resultsOf = (body: Buffer): SendResult[] =>
  decodeBatch(body, SEND_BATCH).map(({ head, payload }, at) => {
    const { id } = head as { id: string };
    return { id, seq: at + 1, duplicate: false, b3: addressOf(payload) };
  });

export const storesAll: Answer = (request, body, response) => {
  if (request.url === '/readyz') return reply(response, 200, { ready: true });
  reply(response, 200, { results: resultsOf(body) });
};

export const messages = (count: number, bytes = 16): OutgoingMessage[] =>
  Array.from({ length: count }, (_, at) => ({
    topic: 'hooks.github',
    id: `01J9ZK3Q7BC4D8WZ1V00A7K2M${at % 10}`,
    idempotency_key: `key-${at}`,
    payload: Buffer.alloc(bytes, at),
  }));

export interface Called extends Upstreams {
  readonly sends: MailboxAccess;
  readonly fake: FakeUpstream;
  readonly events: InteropEvent[];
  readonly capability_file: string;
  /** The value of a series at a scrape. */
  readonly metric: (series: string) => Promise<number>;
}

/** Interop's calls to one fake upstream that stands for all of them. */
export async function calling(t: After, flags: readonly string[] = []): Promise<Called> {
  const dir = tempDirFor(t);
  const capability_file = join(dir, 'mailbox.cap');
  const keys = new MemoryKeySource();
  const { token } = await mint(keys, { audience: 'mailbox', scopes: ['mailbox:send'], ttl_ms: 3_600_000 }, NEVER);
  await writeFile(capability_file, token, { mode: 0o600 });
  await mkdir(join(dir, 'run'), { mode: 0o700 });
  const path = join(dir, 'run', 'up.sock');
  const fake = await fakeUpstream(t, path);
  const { lines: _, log } = captureLog('interop');
  const metrics = new Metrics('interop');
  const config = loadConfig({
    schema,
    env: {},
    flags: [
      `--data_dir=${dir}`,
      `--interop.mailbox_url=unix:${path}`,
      `--interop.mailbox_capability_file=${capability_file}`,
      `--interop.storage_url=unix:${path}`,
      ...flags,
    ],
  });
  const runtime = new ServiceRuntime(concurrency, { metrics, log, config: { value: config } });
  t.after(() => runtime[Symbol.asyncDispose]());
  const events: InteropEvent[] = [];
  const upstreams = openUpstreams({
    config,
    runtime,
    policy: runtime.cell('policy_meta', newPolicyMeta()),
    events: { publish: (event) => void events.push(event) },
  });
  const metric = async (series: string): Promise<number> => metricIn(await metrics.text(), series);
  return { ...upstreams, sends: upstreams.sends!, fake, events, capability_file, metric };
}
