/** The bridge in this process, in front of real storage and passport behind Unix sockets; and a storage of the test. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdir, writeFile } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { attenuate, FileKeySource, mint, type MintInit } from '@ron/auth';
import { leaks } from '@ron/auth/testing';
import { loadConfig } from '@ron/config';
import { NEVER } from '@ron/kernel';
import { createServer, type IncomingMessage, type ServerResponse } from '@ron/kernel/http';
import { defineService, startService } from '@ron/service';
import { Metrics } from '@ron/telemetry';
import { eventually, tempDirFor, type After } from '@ron/testkit';
import { addressOf, captureLog, metricIn, send, ServiceProcess, type Reply, type SendInit } from '@ron/testkit/service';
import { openBridge } from '../../src/bridge/open-bridge.ts';
import { concurrency } from '../../src/concurrency.ts';
import { schema } from '../../src/config.ts';
import { REASONS } from '../../src/reasons.ts';
import { objectRoutes } from '../../src/routes/objects.ts';
import { putRoutes } from '../../src/routes/put.ts';
import type { InteropContext } from '../../src/service.ts';
import { newPolicyMeta } from '../../src/policy-meta.ts';
import { openUpstreams, type Upstreams } from '../../src/upstreams/open-upstreams.ts';

/** Interop with its bridge only. */
const bridge = defineService({
  name: 'interop',
  config: schema,
  concurrency,
  async open(context: InteropContext) {
    const { config, runtime, events, openAuth } = context;
    await openAuth({ dir: undefined });
    const queues = { reads: runtime.workQueue('reads'), puts: runtime.workQueue('puts') };
    const upstreams = openUpstreams({ config, runtime, policy: runtime.cell('policy_meta', newPolicyMeta()), events });
    const opened = openBridge(context, upstreams, queues.puts);
    return {
      routes: [...putRoutes(opened), ...objectRoutes({ ...opened, guardReads: config.auth.reads })],
      lanes: { read: queues.reads },
      reasons: REASONS,
      charges_late: true,
      tasks: {
        read_pool: (task) => queues.reads.serve(task),
        put_pool: (task) => queues.puts.serve(task),
      },
      parts: { upstreams, problems: opened.problems },
    };
  },
});

export interface Bridged {
  readonly url: string;
  readonly port: number;
  readonly upstreams: Upstreams;
  /** Of the gates `put_queue` and `passport`. */
  readonly problems: ReturnType<typeof openBridge>['problems'];
  readonly lines: string[];
  readonly passport: ServiceProcess;
  /** Throws if storage was not started. */
  readonly storage: ServiceProcess;
  /** A token for both scopes of the bridge, with these caveats. */
  client(caveats?: readonly string[], init?: Partial<MintInit>): Promise<string>;
  send(method: string, path: string, init?: SendInit): Promise<Reply>;
  put(body: Uint8Array | string, init?: PutInit): Promise<Reply>;
  metric(series: string): Promise<number>;
  /** Whether storage has an object with these bytes. */
  holds(bytes: Uint8Array): Promise<boolean>;
  /** With a capability for all scopes. */
  ask(service: 'storage' | 'passport', method: string, path: string, body?: unknown): Promise<Reply>;
}

export interface PutInit {
  readonly token?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

export interface BridgeInit {
  readonly flags?: readonly string[];
  readonly storage_flags?: readonly string[];
  /** A socket in place of that of storage. */
  readonly storage_socket?: string;
  /** Whether storage is started too. Default: unless there is another socket. */
  readonly with_storage?: boolean;
  /** A socket in place of that of passport. */
  readonly passport_socket?: string;
  /** Scopes of interop's own capability. */
  readonly passport_scopes?: MintInit['scopes'];
}

/** Started in the order in which they need each other, stopped in reverse. */
export async function startBridge(t: After, init: BridgeInit = {}): Promise<Bridged> {
  const dir = tempDirFor(t);
  const run = join(dir, 'run');
  await mkdir(run, { recursive: true, mode: 0o700 });
  const key_file = join(dir, 'keys');
  const keys = await FileKeySource.open({ path: key_file }, NEVER);
  const passport_socket = join(run, 'passport.sock');
  const own = join(dir, 'passport.cap');
  const { passport_scopes: scopes = ['passport:exchange'] } = init;
  const mintOne = async (claim: MintInit): Promise<string> => (await mint(keys, claim, NEVER)).token;
  const claim = { audience: 'passport', scopes, ttl_ms: 3_600_000, subject: 'svc-interop' } as const;
  await writeFile(own, await mintOne(claim), { mode: 0o600 });
  const auth = [`--auth.key_file=${key_file}`];
  const polls = [...auth, `--auth.passport_url=unix:${passport_socket}`];
  const { log, lines } = captureLog('interop', 'info');

  const processes: ServiceProcess[] = [];
  const start = async (service: 'passport' | 'storage', flags: readonly string[]): Promise<ServiceProcess> => {
    const main = fileURLToPath(new URL(`../../../${service}/src/main.ts`, import.meta.url));
    const socket = `--server.socket=${join(run, `${service}.sock`)}`;
    const process = await ServiceProcess.start({ main, flags: ['--server.bind=127.0.0.1:0', socket, ...flags] });
    processes.push(process);
    return process;
  };
  const { storage_socket: fake, with_storage = fake === undefined } = init;
  const passport = await start('passport', ['--amnesia.enabled=true', ...auth]);
  const storageFlags = [`--data_dirs=${join(dir, 's')}`, ...polls, ...(init.storage_flags ?? [])];
  const storage = with_storage ? await start('storage', storageFlags) : undefined;
  const metrics = new Metrics('interop');
  const flags = [
    '--amnesia.enabled=true',
    ...auth,
    `--auth.passport_url=unix:${init.passport_socket ?? passport_socket}`,
    `--interop.storage_url=unix:${fake ?? join(run, 'storage.sock')}`,
    `--interop.passport_capability_file=${own}`,
    ...(init.flags ?? []),
  ];
  const interop = await startService(bridge, { config: loadConfig({ schema, flags }), metrics, log, env: {} });
  t.after(async () => {
    await interop[Symbol.asyncDispose]();
    for (const process of processes) await process.kill();
    await keys.close();
    leaks.shown('the log', lines.join(''));
    leaks.shown('metrics', await metrics.text());
  });

  if (init.passport_socket === undefined) await knowsRevocations(interop.url);
  if (storage !== undefined) await knowsRevocations(storage.url);

  const client: Bridged['client'] = async (caveats = [], more = {}) => {
    const both = ['interop:put', 'interop:get'] as const;
    const issued = {
      audience: 'interop',
      scopes: both,
      ttl_ms: 3_600_000,
      subject: 'alice',
      epoch: Date.now(),
    } as const;
    return attenuate(await mintOne({ ...issued, ...more }), caveats);
  };
  const all = await client();
  const { url } = interop;
  return {
    url,
    port: Number(new URL(url).port),
    upstreams: interop.upstreams,
    problems: interop.problems,
    lines,
    passport,
    get storage() {
      assert.ok(storage !== undefined, 'storage was started');
      return storage;
    },
    client,
    send: (method, path, more) => send(url, method, path, more),
    put: (body, { token = all, headers } = {}) =>
      send(url, 'POST', '/put', { body, headers: { authorization: `Bearer ${token}`, ...headers } }),
    metric: async (series) => metricIn(await metrics.text(), series),
    holds: async (bytes) => (await send(storage!.url, 'HEAD', `/o/${addressOf(bytes)}`)).status === 200,
    ask: async (service, method, path, body) => {
      const of = service === 'storage' ? storage! : passport;
      const token = await mintOne({ audience: service, scopes: SCOPES[service], ttl_ms: 3_600_000, subject: 'root' });
      const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
      const more = body === undefined ? { headers } : { headers, body: JSON.stringify(body) };
      return await send(of.url, method, path, more);
    },
  };
}

/** Until then a service refuses the capabilities of users. */
async function knowsRevocations(url: string): Promise<void> {
  await eventually(
    'revocations are known',
    async () => !/from passport/.test((await send(url, 'GET', '/readyz')).text),
  );
}

const SCOPES = {
  storage: ['storage:get', 'storage:put', 'storage:admin'],
  passport: ['passport:issue', 'passport:revoke', 'passport:exchange'],
} as const;

/** A storage whose answers the test decides. It never reads a body unless `answer` does. */
export interface FakeStorage {
  readonly path: string;
  answer: (request: IncomingMessage, response: ServerResponse) => void;
  readonly requests: IncomingMessage[];
  readonly sockets: Set<Socket>;
  stop(): Promise<void>;
}

/** `at`: the path of its socket. Default: a temporary one. */
export async function fakeStorage(t: After, answer: FakeStorage['answer'], at?: string): Promise<FakeStorage> {
  const path = at ?? join(tempDirFor(t), 'run', 'fake.sock');
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const sockets = new Set<Socket>();
  const server = createServer((request, response) => {
    fake.requests.push(request);
    request.on('error', () => undefined);
    fake.answer(request, response);
  });
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.once('close', () => sockets.delete(socket));
  });
  const stop = async (): Promise<void> => {
    for (const socket of sockets) socket.destroy();
    if (server.listening) await new Promise((resolve) => void server.close(resolve));
  };
  const fake: FakeStorage = { path, answer, requests: [], sockets, stop };
  server.listen(path);
  await once(server, 'listening');
  t.after(stop);
  return fake;
}
