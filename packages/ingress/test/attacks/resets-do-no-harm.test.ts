/** Clients that reset their connection at any moment do not harm the service. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { json, route } from '@ron/ingress';
import { RawClient, send } from '@ron/testkit/service';
import { startIngress } from '../support.ts';
import { PROBE, Target, raw, withstands } from './target.ts';

const base = { method: 'GET', scope: null, lane: 'inline', body: 'none', summary: 'For a test.' } as const;

const FIRST_PACKETS = {
  CONNECT: raw('CONNECT a:1 HTTP/1.1'),
  'a CONNECT behind a request': PROBE + raw('CONNECT a:1 HTTP/1.1'),
  'an upgrade': raw('GET /greeting HTTP/1.1', ['Host: localhost', 'Connection: upgrade', 'Upgrade: websocket']),
  garbage: 'BAD\r\n\r\n',
  'half a request': 'GET /greeting HTTP/1.1\r\n',
  'nothing at all': '',
};

// Each without and with bytes in RAM: the socket fast path has listeners of its own.
for (const ram of ['1MiB', '0']) {
  test(`no client ends the process by resetting its connection, with ${ram} of RAM`, async () => {
    await using target = await Target.start(`--notes.ram_bytes=${ram}`);
    await withstands(target, async () => {
      for (const [name, packet] of Object.entries(FIRST_PACKETS)) {
        for (let n = 0; n < 10; n += 1) {
          const wire = await target.open();
          wire.write(packet);
          await wire.until(() => wire.received !== '', n * 4);
          wire.socket.resetAndDestroy();
        }
        assert.equal((await target.send('GET', '/healthz')).status, 200, name);
      }
    });
  });
}

/** Connects, sends a request and resets, 20 times, while this process accepts nothing. */
const RESETTER = `
  const { connect } = require('node:net');
  for (let n = 0; n < 20; n += 1) {
    const socket = connect(Number(process.argv[1]), '127.0.0.1');
    socket.on('error', () => undefined);
    socket.on('connect', () => socket.write(process.argv[2], () => socket.resetAndDestroy()));
  }
`;

test('a client that resets before it is accepted is not treated as a peer of a Unix socket', async () => {
  const callers: string[] = [];
  const handler = ({ ip }: { ip: string }): ReturnType<typeof json> => {
    callers.push(ip);
    return json(200, {});
  };
  await using target = await startIngress({ routes: [route({ ...base, path: '/work', handler })] });
  const request = raw('GET /work HTTP/1.1');
  // Synchronous: the connections wait in the kernel until they are reset.
  const { status } = spawnSync(process.execPath, ['-e', RESETTER, String(target.port), request]);
  assert.equal(status, 0);
  assert.equal((await send(target.url, 'GET', '/work')).status, 200);
  assert.deepEqual([...new Set(callers)], ['127.0.0.1']);
});

test('a client that closes its sending side has left: its request is canceled, and it gets no answer', async () => {
  const canceled = Promise.withResolvers<unknown>();
  await using target = await startIngress({
    routes: [
      route({
        ...base,
        path: '/wait',
        handler: async ({ deadline }) => {
          const { signal } = deadline;
          await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
          canceled.resolve((signal.reason as { code?: string }).code);
          return json(200, {});
        },
      }),
    ],
  });
  const client = await RawClient.open(target.port);
  client.head('GET', '/wait');
  client.socket.end();
  assert.equal(await canceled.promise, 'canceled');
  assert.equal(await client.rest(), '');
});
