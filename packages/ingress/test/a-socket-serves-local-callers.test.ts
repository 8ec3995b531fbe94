/** A service with a TCP address and a Unix socket: the same routes, limits and drain at both. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { chmod, chown, lstat, mkdir } from 'node:fs/promises';
import { request } from 'node:http';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { eventually, tempDirFor } from '@ron/testkit';
import { capability, startService } from './support.ts';

interface Reply {
  readonly status: number;
  readonly text: string;
}

function local(socketPath: string, method: string, path: string, headers = {}, body = ''): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const sent = request({ socketPath, method, path, headers: { host: 'localhost', ...headers } }, (answer) => {
      let text = '';
      answer.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
      answer.on('end', () => resolve({ status: answer.statusCode!, text }));
    });
    sent.on('error', reject);
    sent.end(body);
  });
}

const socketIn = (t: TestContext): string => join(tempDirFor(t), 'run', 'notes.sock');

test('both listeners serve the same routes, and count in the same limits and metrics', async (t) => {
  const socket = socketIn(t);
  await using service = await startService([], { socket });
  assert.equal(service.notes.ingress.socket_url, `unix:${socket}`);
  assert.equal((await lstat(socket)).mode & 0o777, 0o600);
  assert.equal((await local(socket, 'PUT', '/notes/a', capability(), 'hello')).status, 201);
  assert.equal((await service.send('GET', '/notes/a')).text, 'hello');
  assert.equal((await local(socket, 'GET', '/notes/a')).text, 'hello');
  assert.equal((await local(socket, 'PUT', '/notes/a', {}, 'hello')).status, 401);
  assert.equal((await local(socket, 'GET', '/notes/%2e%2e/x')).status, 400, 'the same checks');
  assert.equal(await service.metric('rejected_total{reason="unauthorized"}'), 1);
  assert.equal((await local(socket, 'GET', '/healthz')).status, 200);
});

test('for an `ip` caveat, a local caller is this machine', async (t) => {
  const socket = socketIn(t);
  await using service = await startService([], { socket });
  const put = async (caveat: string): Promise<number> =>
    (await local(socket, 'PUT', '/notes/b', capability({ caveats: [caveat] }), 'x')).status;
  assert.equal(await put('ip in 127.0.0.0/8'), 201);
  assert.equal(await put('ip in 10.0.0.0/8'), 403);
  assert.ok(service.url.startsWith('http:'));
});

test('a drain finishes requests at the socket, refuses new ones, and removes the socket', async (t) => {
  const socket = socketIn(t);
  await using service = await startService([], { socket });
  const { ingress } = service.notes;
  const inflight = local(socket, 'GET', '/inline/300');
  await eventually('it runs', () => ingress.admission.inflight === 1);
  ingress.beginDrain();
  assert.equal((await local(socket, 'GET', '/notes/a')).status, 503);
  assert.equal((await local(socket, 'GET', '/healthz')).status, 200);
  const closed = ingress.close(AbortSignal.timeout(10_000));
  assert.equal((await inflight).status, 200);
  assert.deepEqual(await closed, { aborted: 0 });
  assert.ok(!existsSync(socket));
});

test('a directory that another user can reach, or owns, is refused', async (t) => {
  const socket = socketIn(t);
  await mkdir(join(socket, '..'), { mode: 0o700 });
  await chmod(join(socket, '..'), 0o750);
  await assert.rejects(startService([], { socket }), /must be a directory of this user with mode 0700/);
  await chmod(join(socket, '..'), 0o700);
  await chown(join(socket, '..'), 65_534, 65_534).catch(() => t.diagnostic('only root can give directories away'));
  if ((await lstat(join(socket, '..'))).uid === process.geteuid?.()) return;
  await assert.rejects(startService([], { socket }), /must be a directory of this user with mode 0700/);
});
