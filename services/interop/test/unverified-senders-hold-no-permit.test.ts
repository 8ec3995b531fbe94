/** Webhook bodies that never end take nothing that verified webhooks and reads need. */
import assert from 'node:assert/strict';
import { connect, type Socket } from 'node:net';
import { test } from 'node:test';
import { eventually } from '@ron/testkit';
import { send } from '@ron/testkit/service';
import { addProvider, signed } from './node/senders.ts';
import { TestNode } from './node/node.ts';

const SENDERS = 100;
const ADDRESSES = ['127.0.0.2', '127.0.0.3'];

test('[interop I-9] slow unsigned bodies fill no permit: verified webhooks are accepted meanwhile', async (t) => {
  const node = await TestNode.start(t, {
    services: ['kms', 'passport', 'mailbox', 'interop'],
    flags: { interop: ['--server.max_inflight=16', '--server.parked_max=512'] },
  });
  await addProvider(await node.admin(), 'github');
  const { port } = new URL(node.url);
  const sockets: Socket[] = [];
  for (const localAddress of ADDRESSES) {
    for (let at = 0; at < SENDERS; at += 1) {
      const socket = connect({ port: Number(port), host: '127.0.0.1', localAddress });
      socket.on('error', () => undefined);
      socket.write('POST /webhooks/github HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nx');
      sockets.push(socket);
    }
  }
  const parked = ADDRESSES.length * SENDERS;
  await eventually('all bodies are being read', async () => {
    const bytes = await node.process('interop').metric('webhook_unverified_bytes');
    return bytes >= parked;
  });
  const { headers, body } = signed('github', 'one');
  const answer = await send(node.url, 'POST', '/webhooks/github', { headers, body });
  assert.equal(answer.status, 202, answer.text);
  for (const socket of sockets) socket.destroy();
  await eventually('their bytes are given back', async () => {
    return (await node.process('interop').metric('webhook_unverified_bytes')) === 0;
  });
});
