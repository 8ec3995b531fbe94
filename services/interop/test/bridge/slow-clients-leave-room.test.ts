/** Clients of `/put` that send slowly take nothing that webhooks, reads and the clients of other subjects need. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { bytesOf, eventually, KIB, MIB, type After } from '@ron/testkit';
import { addressOf, RawClient, send, type Reply } from '@ron/testkit/service';
import { addProvider, signed } from '../node/senders.ts';
import { TestNode } from '../node/node.ts';

const ADDRESSES = ['127.0.0.2', '127.0.0.3'];
const BUSY = /^HTTP\/1\.1 429 /;

interface Slow {
  readonly node: TestNode;
  readonly clients: readonly RawClient[];
  /** `/put` of another subject, from another address. */
  readonly put: (body: Uint8Array) => Promise<Reply>;
}

/** `count` clients of one capability at two addresses. Each declares `length` bytes and sends `sent` of them. */
async function withSlowClients(
  t: After,
  { count, length, sent }: { readonly count: number; readonly length: number; readonly sent: number },
): Promise<Slow> {
  const node = await TestNode.start(t, {
    flags: { interop: ['--server.max_inflight=32', '--interop.put_workers=8', '--interop.work=32'] },
  });
  await addProvider(await node.admin(), 'github');
  const port = Number(new URL(node.url).port);
  const { authorization } = await node.user();
  const clients: RawClient[] = [];
  t.after(() => clients.forEach((client) => client.destroy()));
  for (let at = 0; at < count; at += 1) {
    const client = await RawClient.open(port, ADDRESSES[at % ADDRESSES.length]);
    client.head('POST', '/put', { Authorization: authorization, 'Content-Length': length });
    client.socket.write(bytesOf(sent, at + 1));
    clients.push(client);
  }
  const token = await node.token('interop', { scopes: ['interop:put'], subject: 'bob', epoch: Date.now() });
  const headers = { authorization: `Bearer ${token}` };
  return { node, clients, put: (body) => send(node.url, 'POST', '/put', { headers, body }) };
}

async function requireRoom({ node, put }: Slow): Promise<void> {
  const webhook = signed('github', 'one');
  assert.equal((await send(node.url, 'POST', '/webhooks/github', webhook)).status, 202);
  for (const body of [bytesOf(100, 1), bytesOf(2 * MIB, 2)]) {
    const stored = await put(body);
    assert.equal(stored.status, 201, stored.text);
    const read = await send(node.url, 'GET', `/o/${addressOf(body)}`);
    assert.ok(read.body.equals(body));
  }
}

const metric = (node: TestNode, name: string): Promise<number> => node.process('interop').metric(name);

describe('[interop I-9] slow clients of one capability', () => {
  test('with streams get 429 beyond two thirds of the slots, and hold no worker of other subjects', async (t) => {
    const slow = await withSlowClients(t, { count: 8, length: 64 * MIB, sent: 256 * KIB });
    const { node, clients } = slow;
    const refused = (): number => clients.filter(({ received }) => BUSY.test(received)).length;
    await eventually('four streams go on, the others are refused', () => refused() === 4);
    assert.equal(await metric(node, 'queue_depth{queue="put_streams"}'), 4);
    assert.ok((await metric(node, 'busy_rejections_total{endpoint="put_streams"}')) >= 4);
    await requireRoom(slow);
    assert.equal((await node.readyz('put')).status, 200);
  });

  test('with small bodies hold neither a permit of the listener nor a worker', async (t) => {
    const slow = await withSlowClients(t, { count: 40, length: 100 * KIB, sent: 1 });
    const { node, clients } = slow;
    const refused = (): number => clients.filter(({ received }) => BUSY.test(received)).length;
    await eventually('eight bodies are being read, the others are refused', () => refused() === 32);
    assert.equal(await metric(node, 'queue_depth{queue="put_requests"}'), 8);
    await requireRoom(slow);
    for (const client of clients) client.destroy();
    await eventually(
      'their slots are free',
      async () => (await metric(node, 'queue_depth{queue="put_requests"}')) === 0,
    );
  });
});
