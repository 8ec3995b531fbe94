import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { addressOf, StorageClient } from '@ron/client';
import { bytesOf, eventually } from '@ron/testkit';
import { startStorage } from '@ron/testkit/service';
import { startService } from '../support.ts';

test('objects come from storage, verified, and are then cached; storage may go away', async (t) => {
  const storage = await startStorage(t);
  const client = new StorageClient({ url: storage.url, capability: storage.token });
  const small = Buffer.from('an object');
  const large = bytesOf(3 * 1024 * 1024);
  await client.put(small, { media_type: 'text/plain' });
  await client.put(large);
  await using edge = await startService({ flags: [`--edge.storage_url=${storage.url}`] });
  for (const bytes of [small, large]) {
    const address = addressOf(bytes);
    const reply = await edge.send('GET', `/edge/assets/o/${address}`);
    assert.equal(reply.status, 200);
    assert.ok(Buffer.from(bytes).equals(reply.body));
    assert.equal(reply.headers.etag, `"${address}"`);
  }
  const path = `/edge/assets/o/${addressOf(small)}`;
  assert.equal((await edge.send('GET', path)).headers['content-type'], 'text/plain');
  const unknown = `/edge/assets/o/${addressOf(Buffer.from('unknown'))}`;
  assert.equal((await edge.send('GET', unknown)).status, 404);
  await eventually('both are cached', async () => (await edge.metric('edge_cache_bytes{tier="cas"}')) > large.length);
  await storage.kill();
  assert.equal((await edge.send('GET', path)).text, 'an object');
  const gone = await edge.send('GET', unknown);
  assert.equal(gone.status, 503, gone.text);
});

test('an object above fill.object_bytes_max is 413 body_cap', async (t) => {
  const storage = await startStorage(t);
  const client = new StorageClient({ url: storage.url, capability: storage.token });
  const { address } = await client.put(bytesOf(70_000));
  const flags = [`--edge.storage_url=${storage.url}`, '--fill.object_bytes_max=64KiB'];
  await using edge = await startService({ flags });
  const reply = await edge.send('GET', `/edge/assets/o/${address}`);
  assert.deepEqual([reply.status, reply.headers['x-reason']], [413, 'body_cap']);
});

test('a storage that sends other bytes is 502, and none of them is served', async () => {
  const server = createServer((request, response) => {
    const headers = { 'content-type': 'application/vnd.ron.bao', 'ron-group-bytes': '65536' };
    if (request.method === 'HEAD')
      response.writeHead(200, { 'content-length': '4', 'content-type': 'image/png' }).end();
    else
      response.writeHead(200, headers).end(Buffer.concat([Buffer.from([4, 0, 0, 0, 0, 0, 0, 0]), Buffer.from('evil')]));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  try {
    await using edge = await startService({ flags: [`--edge.storage_url=${url}`] });
    const reply = await edge.send('GET', `/edge/assets/o/${addressOf(Buffer.from('good'))}`);
    assert.equal(reply.status, 502, reply.text);
    assert.ok(!reply.text.includes('evil'));
  } finally {
    server.closeAllConnections();
    server.close();
  }
});

test('without a storage, every object is 404', async () => {
  await using edge = await startService();
  assert.equal((await edge.send('GET', `/edge/assets/o/${addressOf(Buffer.from('x'))}`)).status, 404);
});
