import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import type { TestContext } from 'node:test';
import { eventually, tempDirFor } from '@ron/testkit';
import { queuedBytes } from './send-queues.ts';

const LINUX = process.platform === 'linux';
const SENT_BYTES = 1024 * 1024;
const never = new AbortController().signal;

/** A connection whose client does not read until `resume`. */
async function pair(t: TestContext, listen: string, dial: string): Promise<{ server: Socket; client: Socket }> {
  const server = createServer();
  const isPath = listen.startsWith('/');
  server.listen(isPath ? { path: listen } : { port: 0, host: listen });
  await once(server, 'listening');
  const accepted = once(server, 'connection') as Promise<[Socket]>;
  const client = connect(isPath ? { path: listen } : { port: (server.address() as AddressInfo).port, host: dial });
  const [socket] = await accepted;
  t.after(() => {
    client.destroy();
    socket.destroy();
    server.close();
  });
  return { server: socket, client };
}

for (const [name, listen, dial] of [
  ['IPv4', '127.0.0.1', '127.0.0.1'],
  ['IPv6', '::1', '::1'],
  ['IPv4 in IPv6', '::', '127.0.0.1'],
] as const) {
  test(`${name}: the queue holds the bytes that were not acknowledged`, { skip: !LINUX }, async (t) => {
    const { server, client } = await pair(t, listen, dial);
    server.write(Buffer.alloc(SENT_BYTES));
    const full = (await queuedBytes([server], never)).get(server);
    assert.ok(full !== undefined && full > 0 && full <= SENT_BYTES, `${full}`);
    client.resume();
    await eventually('all acknowledged', async () => (await queuedBytes([server], never)).get(server) === 0);
    assert.equal(client.bytesRead, SENT_BYTES);
  });
}

test('one call measures many sockets, each by its own line', { skip: !LINUX }, async (t) => {
  const pairs = await Promise.all([0, 1, 2].map(() => pair(t, '127.0.0.1', '127.0.0.1')));
  pairs[1]!.server.write(Buffer.alloc(SENT_BYTES));
  const queued = await queuedBytes(
    pairs.map(({ server }) => server),
    never,
  );
  assert.equal(queued.get(pairs[0]!.server), 0);
  assert.ok(queued.get(pairs[1]!.server)! > 0);
  assert.equal(queued.get(pairs[2]!.server), 0);
});

test('a Unix socket, a closed socket and an aborted call have no entry', async (t) => {
  const dir = tempDirFor(t);
  const unix = await pair(t, join(dir, 's'), '');
  const closed = await pair(t, '127.0.0.1', '127.0.0.1');
  const open = await pair(t, '127.0.0.1', '127.0.0.1');
  closed.server.destroy();
  assert.equal((await queuedBytes([unix.server, closed.server], never)).size, 0);
  assert.equal((await queuedBytes([open.server], AbortSignal.abort())).size, 0);
});
