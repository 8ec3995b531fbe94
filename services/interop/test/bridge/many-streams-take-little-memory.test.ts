/**
 * 64 streams at the same time to a slow storage: the memory of the process of interop does not grow with their length.
 *
 * Released buffers wait for the garbage collector, so the peak of the whole run is compared with that of its first quarter.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { bytesOf, eventually, KIB, MIB } from '@ron/testkit';
import { RawClient } from '@ron/testkit/service';
import { TestNode } from '../node/node.ts';
import { fakeStorage, type FakeStorage } from './support.ts';

const STREAMS = 64;
const BODY_BYTES = 8 * MIB;
const CHUNK = bytesOf(64 * KIB, 9);
/** Of each stream, before the measurement. */
const BEGUN_CHUNKS = 4;
const GROWTH_BYTES_MAX = 64 * MIB;
const SAMPLE_MS = 20;

/** Turns of the loop in which a stream of storage takes one piece: a client can send more in them. */
const TURNS = 4;

/** Discards bodies. */
const slowly: FakeStorage['answer'] = (request, response) => {
  const resumeAfter = (turns: number): void => {
    if (turns === 0) request.resume();
    else setImmediate(() => resumeAfter(turns - 1));
  };
  request.on('data', () => {
    request.pause();
    resumeAfter(TURNS);
  });
  request.on('end', () => response.writeHead(507, { 'content-length': 0 }).end());
};

test(`${STREAMS} streams of ${BODY_BYTES / MIB} MiB grow the memory of interop by less than ${GROWTH_BYTES_MAX / MIB} MiB after their first quarter`, async (t) => {
  const node = await TestNode.start(t, {
    services: ['kms', 'passport', 'interop'],
    flags: { interop: ['--server.inflight_per_ip=128', '--brownout.p95=1m'] },
  });
  const storage = await fakeStorage(t, slowly, node.socketOf('storage').slice('unix:'.length));
  const headers = await node.user();
  const interop = node.process('interop');
  const open = async (): Promise<RawClient> => {
    const client = await RawClient.open(interop.port);
    client.head('POST', '/put', { ...headers, 'Content-Length': BODY_BYTES });
    for (let at = 0; at < BEGUN_CHUNKS; at += 1) client.socket.write(CHUNK);
    return client;
  };
  const clients: RawClient[] = [];
  while (clients.length < STREAMS) {
    const client = await open();
    const begun = clients.length + 1;
    // On a busy machine passport may be late: interop then refuses the body.
    await eventually(
      'it reaches storage or is refused',
      () => storage.requests.length === begun || client.received !== '',
    );
    if (client.received === '') clients.push(client);
    else client.destroy();
  }
  t.after(() => clients.forEach((client) => client.destroy()));

  let received_bytes = 0;
  let [quarter_bytes, peak_bytes] = [interop.resident_bytes, 0];
  const timer = setInterval(() => {
    peak_bytes = Math.max(peak_bytes, interop.resident_bytes);
    if (received_bytes < (STREAMS * BODY_BYTES) / 4) quarter_bytes = peak_bytes;
  }, SAMPLE_MS);
  t.after(() => clearInterval(timer));
  for (const request of storage.requests) request.on('data', (piece: Buffer) => (received_bytes += piece.length));
  await Promise.all(clients.map(finish));
  clearInterval(timer);
  // On a busy machine the deadline of the answer or of passport may pass; every byte has been sent by then.
  for (const { received } of clients) assert.match(received, /^HTTP\/1\.1 50[347] /);
  assert.ok(
    received_bytes > 0.9 * STREAMS * (BODY_BYTES - BEGUN_CHUNKS * CHUNK.length),
    `${received_bytes} bytes arrived`,
  );
  const grown_bytes = peak_bytes - quarter_bytes;
  t.diagnostic(`memory grew by ${Math.round(grown_bytes / MIB)} MiB from ${Math.round(quarter_bytes / MIB)} MiB`);
  assert.ok(grown_bytes < GROWTH_BYTES_MAX, `${Math.round(grown_bytes / MIB)} MiB`);
});

/** Sends the rest of a body and waits for the answer. */
async function finish(client: RawClient): Promise<void> {
  const { socket } = client;
  const isOver = (): boolean => client.closed || client.received !== '';
  for (let at = BEGUN_CHUNKS * CHUNK.length; at < BODY_BYTES && !isOver(); at += CHUNK.length) {
    if (socket.write(CHUNK)) continue;
    await Promise.race([once(socket, 'drain'), once(socket, 'close')]);
  }
  await eventually('it is answered', isOver);
}
