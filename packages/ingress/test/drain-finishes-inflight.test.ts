/** A drain refuses new work, finishes the requests in flight, closes every connection and resets none. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { json, route } from '@ron/ingress';
import type { RouteAnswer } from '@ron/ingress';
import { sched, WorkQueue } from '@ron/kernel';
import { eventually } from '@ron/testkit';
import { RawClient } from '@ron/testkit/service';
import { capability, rawAnswer, startIngress, startService } from './support.ts';

const get = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`;

test('an answer in flight is finished, closes its connection, and the listener stops only then', async () => {
  await using service = await startService();
  const { ingress } = service.notes;
  const client = await RawClient.open(service.port);
  client.write(get('/slow/300'));
  await eventually('it executes', () => ingress.admission.inflight === 1);
  const closed = ingress.close(AbortSignal.timeout(5000));
  assert.equal((await service.send('GET', '/readyz')).status, 503);
  // [storage I-6] [kms I-6] [index I-6] [edge I-6] [interop I-6]
  assert.equal((await service.send('GET', '/greeting')).status, 503, 'it still listens');
  const { status, head } = rawAnswer(await client.rest());
  assert.equal(status, 200);
  assert.match(head, /^connection: close$/im);
  assert.deepEqual(await closed, { aborted: 0 });
  await assert.rejects(service.send('GET', '/healthz'), /ECONNREFUSED/);
});

test('a request that was read before the drain is answered, even if its body arrives later', async () => {
  await using service = await startService();
  const { ingress } = service.notes;
  const client = await RawClient.open(service.port);
  const { authorization } = capability();
  client.write(
    `PUT /notes/d HTTP/1.1\r\nHost: localhost\r\nAuthorization: ${authorization}\r\nContent-Length: 5\r\n\r\nhe`,
  );
  await eventually('it has begun', () => ingress.admission.inflight === 1);
  ingress.beginDrain();
  client.write('llo');
  const { status } = rawAnswer(await client.rest());
  assert.equal(status, 201);
});

test('an idle connection is closed, and a recently used one may send its next request and gets 503', async () => {
  await using service = await startService([], { drain_idle_ms: 400 });
  const { ingress } = service.notes;
  const idle = await RawClient.open(service.port);
  idle.write(get('/greeting'));
  await idle.until(/"greeting"/);
  const late = await RawClient.open(service.port);
  late.write(get('/greeting'));
  await late.until(/"greeting"/);
  ingress.beginDrain();
  // Some sweeps later, but well within its grace.
  await new Promise((resolve) => setTimeout(resolve, 60));
  late.write(get('/greeting'));
  await late.rest();
  assert.match(late.received, /HTTP\/1\.1 503 [^]*\r\nConnection: close\r\n/);
  await idle.rest();
  assert.doesNotMatch(idle.received, /503/, 'an idle connection gets no answer');
});

test('a connection without a request gets 503 instead of a reset when the listener stops', async () => {
  await using service = await startService([], { drain_idle_ms: 400 });
  const fresh = await RawClient.open(service.port);
  await eventually('it is accepted', () => service.notes.ingress.admission.connections === 1);
  const closed = service.notes.ingress.close(AbortSignal.timeout(5000));
  await eventually('it stopped listening', () =>
    service.send('GET', '/healthz').then(
      () => false,
      () => true,
    ),
  );
  fresh.write(get('/greeting'));
  await fresh.until(/HTTP\/1\.1 503 /);
  await fresh.rest();
  assert.equal(fresh.error, undefined);
  assert.deepEqual(await closed, { aborted: 0 });
});

test('a client that is still sending its body reads the refusal and is not reset', async () => {
  await using service = await startService();
  const { authorization } = capability();
  const head = `PUT /notes/d HTTP/1.1\r\nHost: localhost\r\nAuthorization: ${authorization}\r\nContent-Length: 3000\r\n\r\n`;
  service.notes.ingress.beginDrain();
  const client = await RawClient.open(service.port);
  client.write(head);
  // It sends before it reads, in parts, so that a reset would be detected.
  client.socket.pause();
  for (let part = 0; part < 3; part += 1) {
    await eventually('it was refused', async () => (await service.metric('rejected_total{reason="draining"}')) === 1);
    await new Promise((resolve) => setTimeout(resolve, 20));
    client.write('x'.repeat(1000));
  }
  client.socket.resume();
  assert.match(await client.rest(), /HTTP\/1\.1 503 [^]*\r\nConnection: close\r\n/);
  assert.equal(client.error, undefined);
});

test('a long download that began before the drain is finished', async () => {
  await using service = await startService(['--notes.ram_bytes=0']);
  const { ingress } = service.notes;
  const size = 8 * 1024 * 1024;
  await service.send('PUT', '/notes/long', { body: Buffer.alloc(size, 1), headers: capability() });
  const client = await RawClient.open(service.port);
  client.write(get('/notes/long'));
  await client.until(/\r\n\r\n/);
  client.socket.pause();
  const closed = ingress.close(AbortSignal.timeout(5000));
  await eventually('the drain waits', () => ingress.draining);
  client.socket.resume();
  const text = await client.rest();
  assert.equal(text.length - text.indexOf('\r\n\r\n') - 4, size);
  assert.deepEqual(await closed, { aborted: 0 });
});

test('requests that outlast the signal are cut and counted', async () => {
  await using service = await startService();
  const { ingress } = service.notes;
  const client = await RawClient.open(service.port);
  client.write(get('/slow/20000'));
  await eventually('it executes', () => ingress.admission.inflight === 1);
  assert.equal(await ingress.drained(AbortSignal.timeout(100)), false);
  assert.equal(client.closed, false, 'waiting cuts nothing');
  assert.deepEqual(await ingress.close(AbortSignal.timeout(100)), { aborted: 1 });
  await client.rest();
  assert.equal(client.received, '');
  await eventually('its work is aborted', () => ingress.admission.inflight === 0);
  assert.equal(await service.metric('http_requests_total{route="GET /slow/:ms",class="aborted"}'), 1);
});

test('stragglers of the pool are aborted by the service and still get an answer', async () => {
  await using service = await startService(['--drain_deadline=1s']);
  const straggler = service.send('GET', '/slow/20000');
  await eventually('it executes', () => service.notes.ingress.admission.inflight === 1);
  const start_ms = performance.now();
  await service.notes.drain();
  const reply = await straggler;
  assert.equal(reply.status, 503);
  assert.equal(reply.problem?.code, 'canceled');
  assert.ok(performance.now() - start_ms < 2500, 'within the drain deadline and a little');
  // [storage I-6] [kms I-6] [index I-6] [edge I-6] [interop I-6]
  assert.equal(await service.metric('tasks_aborted_total{kind="pool"}'), 1);
});

test('a client that leaves releases everything, and its work is aborted', async () => {
  await using service = await startService(['--notes.workers=1']);
  const { ingress } = service.notes;
  const clients = await Promise.all([1, 2, 3].map(() => RawClient.open(service.port)));
  for (const client of clients) client.write(get('/slow/20000'));
  await eventually('one runs, two wait', async () => (await service.metric('queue_depth{queue="work"}')) === 2);
  for (const client of clients) client.destroy();
  await Promise.all(clients.map((client) => client.rest()));
  await eventually('nothing is in flight', () => ingress.admission.inflight === 0);
  await eventually('nothing waits', async () => (await service.metric('queue_depth{queue="work"}')) === 0);
  assert.equal((await service.send('GET', '/slow/0')).status, 200, 'the worker is free again');
});

test('a drain waits for a handler whose client has left, and reports one that does not end', async () => {
  const work = sched.park<void>('test');
  let running = 0;
  const handler = async (): Promise<RouteAnswer> => {
    running += 1;
    // It ignores its signal.
    await work.promise;
    running -= 1;
    return json(200, {});
  };
  const base = { method: 'GET', scope: null, body: 'none', summary: 'For a test.', handler } as const;
  const queue = new WorkQueue('work', { capacity: 4, lanes: ['work'] });
  const stop = new AbortController();
  const worker = queue.take(stop.signal).then((job) => job?.run(stop.signal));
  await using x = await startIngress({
    routes: [route({ ...base, path: '/inline', lane: 'inline' }), route({ ...base, path: '/queued', lane: 'work' })],
    lanes: { work: queue },
  });
  const clients = await Promise.all([RawClient.open(x.port), RawClient.open(x.port)]);
  clients[0].write(get('/inline'));
  clients[1].write(get('/queued'));
  await eventually('both run', () => running === 2);
  for (const client of clients) client.destroy();
  await eventually('both clients have left', () => x.ingress.admission.connections === 0);
  assert.equal(x.ingress.admission.inflight, 2, 'running work holds its permit');
  assert.equal(await x.ingress.drained(AbortSignal.timeout(100)), false);
  work.wake();
  assert.equal(await x.ingress.drained(AbortSignal.timeout(10_000)), true);
  assert.equal(running, 0);
  assert.equal(x.ingress.admission.inflight, 0);
  await worker;
});
