/** A request with neither Content-Length nor Transfer-Encoding has an empty body (RFC 9112, 6.3), on every kind of route. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { json, route } from '@ron/ingress';
import { RawClient } from '@ron/testkit/service';
import { proxyBench } from './proxy-bench.ts';
import { capability, rawAnswer, startIngress, startService } from './support.ts';

const EMPTY_B3 = 'b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262';
const OTHER_B3 = `b3:${'0'.repeat(64)}`;

async function answerOf(port: number, method: string, path: string, headers: Record<string, string> = {}) {
  const client = await RawClient.open(port);
  client.head(method, path, { ...headers, Connection: 'close' });
  const text = await client.rest();
  return { ...rawAnswer(text), body: text.slice(text.indexOf('\r\n\r\n') + 4) };
}

test('a buffered body is empty', async () => {
  await using service = await startService();
  assert.deepEqual(JSON.parse((await answerOf(service.port, 'POST', '/raw')).body), { bytes: 0 });
  const coded = await answerOf(service.port, 'POST', '/raw', { 'Content-Encoding': 'gzip' });
  assert.deepEqual(JSON.parse(coded.body), { bytes: 0 });
  const order = await answerOf(service.port, 'POST', '/orders');
  assert.equal(order.status, 400, 'null does not fit the schema of an order');
  assert.equal(order.problem?.['code'], 'validation');
});

test('a streamed body is empty', async () => {
  await using service = await startService();
  const stored = await answerOf(service.port, 'PUT', '/notes/none', { Authorization: capability().authorization });
  assert.equal(stored.status, 201, stored.body);
  assert.equal(JSON.parse(stored.body).size, 0);
});

test('the capability checks the hash of zero bytes', async () => {
  await using service = await startService();
  const put = (body: string) =>
    answerOf(service.port, 'PUT', '/notes/none', {
      Authorization: capability({ caveats: [`body = ${body}`] }).authorization,
    });
  assert.equal((await put(EMPTY_B3)).status, 201);
  assert.equal((await put(OTHER_B3)).status, 403);
});

test('a streamed body that would be gathered is empty', async () => {
  await using x = await startIngress({
    routes: [
      route({
        method: 'PUT',
        path: '/gathered',
        summary: 'For a test.',
        scope: null,
        lane: 'inline',
        body: 'stream',
        gather_bytes_max: 1024,
        handler: async ({ stream }) => json(200, { chunks: (await Array.fromAsync(stream)).length }),
      }),
    ],
  });
  assert.deepEqual(JSON.parse((await answerOf(x.port, 'PUT', '/gathered')).body), { chunks: 0 });
});

test('a forwarded body is empty', async (t: TestContext) => {
  const x = await proxyBench(t, (req, res) => {
    req.resume();
    req.on('end', () => res.end('ended'));
  });
  const { status, body } = await answerOf(x.port, 'PUT', '/api/up/o');
  assert.equal(status, 200);
  assert.match(body, /ended/);
});

test('the connection serves the next request', async () => {
  await using service = await startService();
  const client = await RawClient.open(service.port);
  client.head('POST', '/raw');
  client.head('POST', '/raw', { Connection: 'close' });
  assert.equal((await client.rest()).match(/"bytes":0/g)?.length, 2);
});
