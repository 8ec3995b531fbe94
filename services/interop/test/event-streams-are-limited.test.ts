/** As many event streams as `server.events_max` allows each get every event; one more gets 429. */
import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { test } from 'node:test';
import { eventually } from '@ron/testkit';
import { TestNode } from './node/node.ts';
import { addProvider } from './node/senders.ts';

const STREAMS = 80;

test('[interop I-3] each allowed reader of events gets them, and one more gets 429', async (t) => {
  const node = await TestNode.start(t, {
    services: ['kms', 'passport', 'interop'],
    flags: { interop: [`--server.events_max=${2 * STREAMS}`] },
  });
  const token = await node.token('interop');
  await addProvider(await node.admin(), 'github');
  const { port } = new URL(node.url);
  const received: string[] = [];
  const open = (at: number): void => {
    const socket = connect(Number(port), '127.0.0.1');
    received[at] = '';
    socket.on('data', (bytes) => (received[at] += bytes.toString()));
    socket.on('error', () => undefined);
    t.after(() => socket.destroy());
    socket.write(`GET /admin/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${token}\r\n\r\n`);
  };
  for (let at = 0; at < STREAMS; at += 1) open(at);
  await eventually('all streams are open', () => received.every((text) => text.startsWith('HTTP/1.1 200')));
  open(STREAMS);
  await eventually('one more is refused', () => received[STREAMS]!.startsWith('HTTP/1.1 429'));
  const forged = await node.process('interop').send('POST', '/webhooks/github', { body: '{}' });
  assert.equal(forged.status, 401);
  await eventually('each reader has the event', () =>
    received.slice(0, STREAMS).every((text) => text.includes('BAD_ORIGIN')),
  );
});
