/** Clients that stop reading cost one chunk each, and a bounded amount of read-ahead together. */
import assert from 'node:assert/strict';
import { connect, type Socket } from 'node:net';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { bytesOf, eventually, KIB, MIB } from '@ron/testkit';
import { send } from '@ron/testkit/service';
import { startService, type TestService } from './support.ts';

const CLIENTS = 250;
/** They stay, however long the test takes. */
const FLAGS = ['--storage.cache_bytes=1MiB', '--write_timeout=2m', '--storage.get_deadline=1m'];
setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc') as () => void;

/** After garbage is gone, which the collector frees on other threads. */
async function memory(): Promise<number> {
  let last = Infinity;
  for (;;) {
    gc();
    await new Promise((resolve) => setTimeout(resolve, 200));
    const { heapUsed, external } = process.memoryUsage();
    if (heapUsed + external > last - MIB) return Math.min(last, heapUsed + external);
    last = heapUsed + external;
  }
}

async function idleClients(service: TestService, addresses: readonly string[]): Promise<Socket[]> {
  const sockets = Array.from({ length: CLIENTS }, (_, index) => {
    const socket = connect(service.port, '127.0.0.1');
    socket.on('error', () => undefined);
    socket.pause();
    socket.write(`GET /o/${addresses[index % addresses.length]} HTTP/1.1\r\nHost: localhost\r\n\r\n`);
    return socket;
  });
  const inflight = (): Promise<number> => service.metric('http_requests_inflight');
  await eventually('all of them are being served', async () => (await inflight()) === CLIENTS);
  // Until the buffers of the operating system are full and no chunk moves; timers and metrics allocate a little.
  let last = -1;
  let still = 0;
  await eventually('nothing moves any more', async () => {
    await new Promise((resolve) => setTimeout(resolve, 200));
    const { arrayBuffers } = process.memoryUsage();
    still = Math.abs(arrayBuffers - last) < 64 * KIB ? still + 1 : 0;
    last = arrayBuffers;
    return still === 3;
  });
  assert.equal(await inflight(), CLIENTS);
  return sockets;
}

for (const [name, init] of [
  ['one volume', {}],
  ['three volumes', { dirs: ['a', 'b', 'c'] }],
] as const) {
  test(`${CLIENTS} clients that do not read, on ${name}`, async () => {
    await using service = await startService({ ...init, flags: FLAGS });
    const addresses: string[] = [];
    for (let seed = 1; seed <= 4; seed++) addresses.push(await service.put(bytesOf(16 * MIB, seed)));
    // Warm up, so that memory that is never released is not counted.
    for (const address of addresses) assert.equal((await send(service.url, 'GET', `/o/${address}`)).status, 200);
    const before = await memory();
    const sockets = await idleClients(service, addresses);
    // A chunk each, sockets and requests, here on both sides, and the read-ahead.
    const allowed = CLIENTS * (68 + 64) * KIB + 16 * MIB;
    // On a busy machine released buffers are freed late; those of the clients stay.
    await eventually(
      `${CLIENTS} clients take less than ${allowed / MIB} MiB`,
      async () => (await memory()) - before < allowed,
    );
    for (const socket of sockets) socket.destroy();
    const reply = await send(service.url, 'GET', `/o/${addresses[0]}`);
    assert.ok(reply.body.equals(bytesOf(16 * MIB, 1)));
  });
}
