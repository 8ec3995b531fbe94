/** Parked handlers hold no in-flight permit, are bounded, stay under their budget and are awaited by a drain. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { json, route } from '@ron/ingress';
import type { RouteAnswer, Route, RouteContext } from '@ron/ingress';
import { sched, WorkQueue } from '@ron/kernel';
import type { Parked } from '@ron/kernel';
import { eventually } from '@ron/testkit';
import { RawClient, send } from '@ron/testkit/service';
import { startIngress } from './support.ts';

const base = { method: 'GET', scope: null, lane: 'inline', body: 'none', summary: 'For a test.' } as const;
const quick = route({ ...base, path: '/quick', handler: () => json(200, {}) });
const get = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`;

/** A route whose handlers all wait for `wake`. */
function waiting(more: Partial<Route> = {}): { route: Route; waits: Parked<string>[] } {
  const waits: Parked<string>[] = [];
  const handler = async (context: RouteContext): Promise<RouteAnswer> => {
    const parked = sched.park<string>('test');
    waits.push(parked);
    return json(200, { woken: await context.park(parked.promise) });
  };
  return { route: route({ ...base, path: '/wait', deadline_ms: 60_000, handler, ...more }), waits };
}

test('parked handlers hold no permit, and reacquire it when they are woken', async () => {
  const { route: wait, waits } = waiting();
  await using x = await startIngress({ config: { max_inflight: 1 }, routes: [wait, quick] });
  const replies = [];
  for (let n = 1; n <= 3; n += 1) {
    replies.push(send(x.url, 'GET', '/wait'));
    await eventually('it is parked', () => waits.length === n && x.ingress.admission.inflight === 0);
  }
  assert.equal((await send(x.url, 'GET', '/quick')).status, 200, 'the only permit is free');
  for (const parked of waits) parked.wake('yes');
  for (const reply of await Promise.all(replies)) assert.deepEqual(JSON.parse(reply.text), { woken: 'yes' });
  await eventually('all permits are free', () => x.ingress.admission.inflight === 0);
  await eventually('no address is left', () => x.ingress.admission.addresses === 0);
});

test('parked handlers are limited, half of them per address; more get 429', async () => {
  const { route: wait, waits } = waiting();
  await using x = await startIngress({ config: { parked_max: 3 }, routes: [wait] });
  const replies = [send(x.url, 'GET', '/wait'), send(x.url, 'GET', '/wait')];
  await eventually('two are parked', () => waits.length === 2 && x.ingress.admission.inflight === 0);
  const refused = await send(x.url, 'GET', '/wait');
  assert.deepEqual([refused.status, refused.problem?.code], [429, 'busy']);
  const other = await RawClient.open(x.port, '127.0.0.2');
  other.write(get('/wait'));
  await eventually('another address has room', () => waits.length === 4 && x.ingress.admission.inflight === 0);
  assert.equal(await x.metric('rejected_total{reason="busy"}'), 1);
  for (const parked of waits) parked.wake('yes');
  await other.until(/200 OK/);
  for (const reply of await Promise.all(replies)) assert.equal(reply.status, 200);
  other.destroy();
});

test('the end of the budget or of the client ends a park and frees its slot', async () => {
  const { route: wait, waits } = waiting({ deadline_ms: 200 });
  await using x = await startIngress({ config: { parked_max: 1 }, routes: [wait] });
  assert.equal((await send(x.url, 'GET', '/wait')).problem?.code, 'timeout');
  const patient = waiting();
  await using y = await startIngress({ config: { parked_max: 1 }, routes: [patient.route] });
  const client = await RawClient.open(y.port);
  client.write(get('/wait'));
  await eventually('it is parked', () => patient.waits.length === 1 && y.ingress.admission.inflight === 0);
  client.destroy();
  let begun = 1;
  await eventually('the slot is free', async () => {
    const again = await RawClient.open(y.port);
    again.write(get('/wait'));
    await eventually('its handler began', () => patient.waits.length > begun);
    begun = patient.waits.length;
    patient.waits.at(-1)!.wake('yes');
    await again.until(/HTTP/);
    again.destroy();
    return again.received.includes('200 OK');
  });
  assert.equal(waits.length, 1);
});

test('a handler in a worker cannot park', async () => {
  const queue = new WorkQueue('work', { capacity: 4, lanes: ['work'] });
  const { route: wait, waits } = waiting({ lane: 'work' });
  await using x = await startIngress({ routes: [wait], lanes: { work: queue } });
  const stop = new AbortController();
  const worker = queue.take(stop.signal).then((job) => job?.run(stop.signal));
  assert.equal((await send(x.url, 'GET', '/wait')).problem?.code, 'internal');
  waits[0]!.fail(new Error('no listener is left'));
  await worker;
  assert.ok(x.lines.some((line) => line.includes('cannot park')));
});

test('a drain waits for parked handlers and notifies them by their signal', async () => {
  const early = async (context: RouteContext): Promise<RouteAnswer> => {
    const parked = sched.park<string>('test');
    context.draining.addEventListener('abort', () => parked.wake('draining'), { once: true });
    return json(200, { woken: await context.park(parked.promise) });
  };
  const { route: stubborn, waits } = waiting();
  const routes = [stubborn, route({ ...base, path: '/early', handler: early })];
  await using x = await startIngress({ routes });
  const clients = await Promise.all([RawClient.open(x.port), RawClient.open(x.port)]);
  clients[0].write(get('/early'));
  clients[1].write(get('/wait'));
  await eventually('both are parked', () => waits.length === 1 && x.ingress.admission.connections === 2);
  await eventually('no permit is held', () => x.ingress.admission.inflight === 0);
  assert.equal(await x.ingress.drained(AbortSignal.timeout(100)), false);
  assert.match(await clients[0].rest(), /"woken":"draining"/);
  waits[0]!.wake('yes');
  assert.match(await clients[1].rest(), /"woken":"yes"/);
  assert.equal(await x.ingress.drained(AbortSignal.timeout(10_000)), true);
});
