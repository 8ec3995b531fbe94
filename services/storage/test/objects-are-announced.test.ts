/** Storage announces its objects to the index behind a Unix socket, and works without it. */
import assert from 'node:assert/strict';
import { createServer, type Server } from 'node:http';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { inspectToken, MemoryKeySource } from '@ron/auth';
import { writeSecret } from '@ron/log';
import type { AnnounceDto } from '@ron/proto';
import { bytesOf, eventually, tempDir } from '@ron/testkit';
import { addressOf, authorizationFor } from '@ron/testkit/service';
import { runTask, startService } from './support.ts';

interface Call {
  readonly path: string;
  readonly token: string;
  readonly body: AnnounceDto;
}

let temp: Awaited<ReturnType<typeof tempDir>>;
let flags: readonly string[];
let socket: string;
const calls: Call[] = [];

before(async () => {
  temp = await tempDir();
  socket = join(temp.path, 'index.sock');
  const file = join(temp.path, 'index.cap');
  const { authorization } = await authorizationFor(new MemoryKeySource(), 'index', { scopes: ['index:announce'] });
  await writeSecret(file, authorization.slice('Bearer '.length));
  flags = [`--storage.index_url=unix:${socket}`, `--storage.index_capability_file=${file}`];
});
after(() => temp[Symbol.asyncDispose]());

/** Answers every announcement with one epoch. */
async function listen(): Promise<Server> {
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const token = (request.headers.authorization ?? '').slice('Bearer '.length);
      const body = JSON.parse(Buffer.concat(chunks).toString()) as AnnounceDto;
      calls.push({ path: `${request.method} ${request.url}`, token, body });
      const answer = '{"epoch":"1"}';
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': answer.length }).end(answer);
    });
  });
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  return server;
}

async function close(server: Server): Promise<void> {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
}

const announced = (address: string): boolean =>
  calls.some(({ body }) => body.entries.some((entry) => entry.address === address));
const withdrawn = (address: string): boolean => calls.some(({ body }) => body.withdraw?.includes(address as never));

test('reads and writes work while the index is absent; once it is there, it learns of all objects', async () => {
  await using service = await startService({ flags: [...flags, '--storage.lease=1s'] });
  const early = bytesOf(100, 1);
  const large = bytesOf(200_000, 2);
  await service.put(early, { 'content-type': 'text/plain' });
  await service.put(large);
  assert.equal((await service.send('GET', `/o/${addressOf(early)}`)).status, 200);
  const server = await listen();
  try {
    await eventually('both are announced', () => announced(addressOf(early)) && announced(addressOf(large)));
    const entries = calls.flatMap(({ body }) => body.entries);
    assert.deepEqual(
      entries.find(({ address }) => address === addressOf(early)),
      { address: addressOf(early), size: 100, media_type: 'text/plain' },
    );
    assert.equal(entries.find(({ address }) => address === addressOf(large))!.size, 200_000);
    await eventually('the walk ends', async () => (await service.metric('announce_walks_total')) > 0);
    const ranges = calls.flatMap(({ body }) => body.range ?? []);
    assert.deepEqual(ranges.at(-1), { after: null, through: null });
    await eventually('the lease runs out', async () => {
      await runTask(service, 'compact');
      return (await service.send('GET', `/o/${addressOf(early)}`)).status === 404;
    });
    await eventually('it is withdrawn', () => withdrawn(addressOf(early)));
    for (const { path, token } of calls) {
      assert.equal(path, 'POST /announce');
      // A token for this body and a few seconds: another process that reads it cannot announce with it.
      assert.deepEqual(inspectToken(token).scopes, ['index:announce']);
      assert.ok(inspectToken(token).caveats.some(({ key }) => key === 'body'));
    }
  } finally {
    await close(server);
  }
});

test('a node whose reads need a capability announces nothing and withdraws earlier announcements', async () => {
  await using service = await startService({ flags: [...flags, '--auth.reads=true'] });
  calls.length = 0;
  const server = await listen();
  try {
    const address = await service.put(bytesOf(100, 3));
    await eventually('it is withdrawn', () => withdrawn(address));
    await eventually('all others are', () => calls.some(({ body }) => body.range?.through === null));
    assert.ok(calls.every(({ body }) => body.entries.length === 0));
  } finally {
    await close(server);
  }
});
