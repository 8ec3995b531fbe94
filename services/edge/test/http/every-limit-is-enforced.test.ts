/** Each limit of the listener is crossed once with its default, and requests within it succeed. */
import assert from 'node:assert/strict';
import { Agent } from 'node:http';
import { test } from 'node:test';
import { eventually } from '@ron/testkit';
import { RawClient, type Reply } from '@ron/testkit/service';
import { untilReady } from '../packs/registry-support.ts';
import { startService } from '../support.ts';

const PATH = '/edge/assets/pack/none.json';
const MIB = 1024 * 1024;

test('500 requests per second, after a burst', async () => {
  await using service = await startService();
  // Until packs are verified, a pack that does not exist may still be found.
  await untilReady(service);
  const agent = new Agent({ keepAlive: true, maxSockets: 8 });
  const began_ms = performance.now();
  const replies = await Promise.all(Array.from({ length: 1200 }, () => service.send('GET', PATH, { agent })));
  const seconds = (performance.now() - began_ms) / 1000;
  agent.destroy();
  const served = replies.filter(({ status }) => status === 404).length;
  const limited = replies.filter(({ status }) => status === 429);
  assert.equal(served + limited.length, replies.length);
  assert.ok(served >= 250, `the burst passes: ${served}`);
  assert.ok(served <= 250 + 500 * seconds + 1, `${served} requests passed in ${seconds} s`);
  assert.ok(limited.length > 0);
  assert.equal(limited[0]!.headers['x-reason'], 'rate_limit');
  assert.equal(await service.metric('edge_rejects_total{reason="rate_limit"}'), limited.length);
});

test('[edge I-9] 512 requests in flight, of which 32 places are for services of the node', async () => {
  await using service = await startService({ flags: ['--ingress.rps_limit=100000', '--server.rps_burst=10000'] });
  await untilReady(service);
  const { authorization } = await service.allow();
  const headers = { Authorization: authorization, 'Content-Type': 'application/json', 'Content-Length': 100 };
  const clients = await Promise.all(
    Array.from({ length: 480 }, async (_, index) => {
      const client = await RawClient.open(service.port, index < 240 ? '127.0.0.1' : '127.0.0.2');
      client.head('POST', '/edge/purge', headers);
      return client;
    }),
  );
  const { admission } = service.edge.ingress;
  await eventually('480 requests wait for their bodies', () => admission.inflight === 480);
  const one_more = await service.send('GET', PATH);
  assert.equal(one_more.status, 429);
  assert.equal(one_more.json.code, 'inflight_limit');
  assert.equal(one_more.headers['x-reason'], undefined);
  assert.equal((await service.send('GET', '/readyz')).status, 200, 'probes are answered');
  assert.equal(await service.metric('rejected_total{reason="inflight_limit"}'), 1);
  clients.pop()!.destroy();
  await eventually('a place is free', async () => (await service.send('GET', PATH)).status === 404);
  for (const client of clients) client.destroy();
  await eventually('all places are free', () => admission.inflight === 0);
});

test('1 MiB of a buffered body', async () => {
  await using service = await startService();
  const headers = { ...(await service.allow()), 'content-type': 'application/json' };
  const bodyOf = (bytes: number): string => JSON.stringify({ key: 'x'.repeat(bytes - '{"key":""}'.length) });
  const purge = (body: string): Promise<Reply> => service.send('POST', '/edge/purge', { body, headers });
  const largest = await purge(bodyOf(MIB));
  assert.equal(largest.status, 400, 'it is read, and its key is too long');
  const above = await purge(bodyOf(MIB + 1));
  assert.equal(above.status, 413);
  assert.equal(above.headers['x-reason'], 'body_cap');
});
