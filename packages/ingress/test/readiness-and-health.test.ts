/** `/readyz`, `/healthz`, `/version`, `/openapi.json`, and the second listener. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createIngress } from '@ron/ingress';
import { Metrics } from '@ron/telemetry';
import { capability, startService } from './support.ts';
import { eventually } from '@ron/testkit';
import { RawClient, send } from '@ron/testkit/service';

test('a soft gate degrades, and is hard for a probe of its lane', async () => {
  await using service = await startService();
  const ready = await service.send('GET', '/readyz');
  assert.equal(ready.status, 200);
  const gates = ['replay', 'brownout', 'overload', 'draining'];
  assert.deepEqual(
    JSON.parse(ready.text).gates.map((gate: { gate: string }) => gate.gate),
    gates,
  );
  service.notes.gates.brownout.close('upstream is slow');
  const degraded = await service.send('GET', '/readyz');
  assert.equal(degraded.status, 200);
  assert.deepEqual(JSON.parse(degraded.text).degraded, ['brownout']);
  const lane = await service.send('GET', '/readyz?lane=bridge');
  assert.equal(lane.status, 503);
  assert.match(lane.headers['retry-after']!, /^\d+$/);
  assert.match(lane.text, /"gate":"brownout","kind":"soft","open":false,"reason":"upstream is slow"/);
  assert.equal((await service.send('GET', '/readyz?lane=other')).status, 200);
  assert.equal((await service.send('GET', '/readyz?lane=brownout')).status, 503, 'a gate is a lane of its own');
  assert.equal((await service.send('GET', '/readyz?lane=../x')).status, 400);
  assert.equal((await service.send('GET', '/readyz?other=1')).status, 400);
  assert.equal((await service.send('GET', '/greeting')).status, 200, 'a soft gate refuses no work');
});

test('/healthz reports a critical task that stays down', async () => {
  await using service = await startService();
  assert.equal((await service.send('GET', '/healthz')).status, 200);
  // Five restarts are allowed; the sixth crash within the window is final.
  for (let crash = 1; crash <= 6; crash += 1) {
    const spawned = `tasks_spawned_total{kind="ticker"}`;
    await eventually('it runs again', async () => (await service.metric(spawned)) >= crash);
    await service.send('POST', '/admin/crash', { headers: capability() });
  }
  await eventually('it is fatal', async () => (await service.send('GET', '/healthz')).status === 503);
  const sick = await service.send('GET', '/healthz');
  assert.equal(sick.problem?.code, 'unhealthy');
  assert.match(sick.text, /"task":"ticker"/);
});

test('version, and an OpenAPI document that names every route with its scope', async () => {
  await using service = await startService();
  const version = JSON.parse((await service.send('GET', '/version')).text);
  assert.deepEqual(version, { service: 'notes', version: '0.1.0', node: process.version });
  const document = JSON.parse((await service.send('GET', '/openapi.json')).text);
  assert.equal(document.openapi, '3.1.0');
  const paths = Object.keys(document.paths).toSorted();
  assert.deepEqual(paths, [
    '/admin/crash',
    '/admin/refuse',
    '/defect',
    '/events',
    '/greeting',
    '/healthz',
    '/inline/{ms}',
    '/metrics',
    '/notes/{name}',
    '/openapi.json',
    '/orders',
    '/raw',
    '/readyz',
    '/slow/{ms}',
    '/version',
  ]);
  assert.deepEqual(Object.keys(document.paths['/notes/{name}']).toSorted(), ['get', 'put']);
  assert.deepEqual(document.paths['/notes/{name}'].put.security, [{ capability: ['storage:put'] }]);
  assert.equal(document.paths['/notes/{name}'].get.security, undefined);
  const order = document.paths['/orders'].post.requestBody.content['application/json'].schema;
  assert.equal(order.additionalProperties, false);
});

test('the declaration of the example service is accurate', async () => {
  await using service = await startService();
  assert.deepEqual(service.notes.runtime.unbuilt(), []);
});

test('metrics_addr answers health routes only, even if the main listener is full', async () => {
  await using service = await startService([], { metrics_addr: '127.0.0.1:0', max_inflight: 1 });
  const url = service.notes.ingress.metrics_url!;
  assert.notEqual(url, service.url);
  const held = service.send('GET', '/inline/200');
  for (const path of ['/healthz', '/readyz', '/metrics', '/version', '/openapi.json']) {
    assert.equal((await send(url, 'GET', path)).status, 200, path);
  }
  const other = await send(url, 'GET', '/greeting');
  assert.equal(other.status, 404);
  assert.equal(other.problem?.code, 'not_found');
  assert.equal((await held).status, 200);
  service.notes.ingress.beginDrain();
  assert.equal((await send(url, 'GET', '/readyz')).status, 503);
  assert.equal((await send(url, 'GET', '/healthz')).status, 200);
});

test('metrics_addr has its own connection limit', async () => {
  await using service = await startService([], { metrics_addr: '127.0.0.1:0', max_conns: 1 });
  const held = await RawClient.open(service.port);
  await eventually('the main listener is full', () => service.notes.ingress.admission.connections === 1);
  assert.equal((await service.send('GET', '/healthz')).status, 429);
  assert.equal((await send(service.notes.ingress.metrics_url!, 'GET', '/healthz')).status, 200);
  held.destroy();
});

test('a HEAD before other requests does not affect their answers', async () => {
  await using service = await startService();
  const head = await service.send('HEAD', '/greeting');
  assert.equal(head.status, 200);
  assert.equal(head.headers['content-length'], '20');
  assert.equal((await service.send('GET', '/greeting')).text, '{"greeting":"hello"}');
});

test('scrapes within one event loop iteration share a rendering, even if they are pipelined', async () => {
  const metrics = new Metrics('x');
  let renderings = 0;
  metrics.gaugeFrom('renderings', 'For a test.', [], () => {
    renderings += 1;
    return [{ labels: {}, value: renderings }];
  });
  await using ingress = await createIngress({ service: 'x', version: '0', metrics, routes: [] });
  const port = Number(new URL(await ingress.listen()).port);
  const clients = await Promise.all(Array.from({ length: 10 }, () => RawClient.open(port)));
  for (const client of clients) client.write('GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n'.repeat(20));
  const answers = (): number =>
    clients.reduce((sum, { received }) => sum + received.split('HTTP/1.1 200').length - 1, 0);
  await eventually('all are answered', () => answers() === 200);
  assert.ok(renderings <= 100, `${renderings} renderings for 200 scrapes`);
  for (const client of clients) client.destroy();
});
