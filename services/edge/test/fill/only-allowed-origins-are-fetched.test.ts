import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { eventually } from '@ron/testkit';
import { startService } from '../support.ts';
import {
  answer,
  flagsFor,
  FRESH,
  HOST,
  originOf,
  refused,
  removeFiles,
  startFilling,
  statusAnswer,
} from './support.ts';

after(removeFiles);

test('an origin that is not in fill.allow is 403 not_allowed, and no connection is opened', async () => {
  await using origin = await originOf((socket) => socket.write(answer('tile', FRESH)));
  await using edge = await startFilling(origin);
  for (const host of ['other.test', `other.test:${origin.port}`, HOST, `127.0.0.1:${origin.port}`, '169.254.169.254'])
    refused(await edge.send('GET', `/edge/assets/live/${host}/a.png`), 403, 'reject_policy', 'not_allowed');
  assert.equal(origin.accepted(), 0);
  assert.equal(await edge.metric('edge_rejects_total{reason="not_allowed"}'), 5);
});

test('offline, every miss is 403 not_allowed', async () => {
  await using origin = await originOf((socket) => socket.write(answer('tile', FRESH)));
  await using edge = await startFilling(origin, { flags: ['--edge.mode=offline'] });
  refused(await edge.get('/a.png'), 403, 'reject_policy', 'not_allowed');
  assert.equal(origin.accepted(), 0);
});

test('in amnesia, fills are kept in memory, or refused', async () => {
  await using origin = await originOf((socket) => socket.write(answer('tile', FRESH)));
  const amnesia = '--amnesia.enabled=true';
  await using edge = await startFilling(origin, { flags: [amnesia] });
  assert.equal((await edge.get('/a.png')).text, 'tile');
  await eventually('a hit', async () => /hit/.test(String((await edge.get('/a.png')).headers['cache-status'])));
  assert.equal(origin.requests.length, 1);
  await using refusing = await startFilling(origin, { flags: [amnesia, '--amnesia.fill=refuse'] });
  refused(await refusing.get('/a.png'), 403, 'reject_policy', 'amnesia');
});

test('a parameter that is not in fill.query is 400; the others reach the origin in one order', async () => {
  await using origin = await originOf((socket) => socket.write(answer('tile', FRESH)));
  await using edge = await startFilling(origin, { flags: ['--fill.query=size,q'] });
  assert.equal((await edge.get('/a.png?token=1')).status, 400);
  assert.equal((await edge.get('/a.png?size=2&q=x%20y')).status, 200);
  assert.equal((await edge.get('/a.png?q=x+y&size=2')).status, 200);
  assert.match(origin.requests[0]!, /^GET \/a\.png\?q=x%20y&size=2 HTTP/);
  assert.equal(origin.requests.length, 1);
});

for (const address of ['10.0.0.1', '169.254.169.254', '::1', '0.0.0.0', '::ffff:127.0.0.1', '100.64.0.1'])
  test(`a name that resolves to ${address} is refused without a connection`, async () => {
    await using origin = await originOf((socket) => socket.write(answer('tile', FRESH)));
    await using edge = await startFilling(origin, { lookup: () => Promise.resolve([address]) });
    refused(await edge.get('/a.png'), 502, 'bad_gateway');
    assert.equal(origin.accepted(), 0);
  });

test('an address that changes between two lookups is checked again', async () => {
  await using origin = await originOf((socket) => socket.end(answer('tile', FRESH, 'connection: close')));
  const answers = [['127.0.0.1'], ['10.0.0.1']];
  let lookups = 0;
  await using edge = await startFilling(origin, { lookup: () => Promise.resolve(answers[lookups++ % 2]!) });
  assert.equal((await edge.get('/a.png')).status, 200);
  refused(await edge.get('/b.png'), 502, 'bad_gateway');
  assert.deepEqual([lookups, origin.accepted()], [2, 1]);
});

test('a reload that removes an origin ends its fills with 403 and closes its connections', async () => {
  let isHeld = false;
  await using origin = await originOf((socket) => void (isHeld || socket.write(answer('tile', FRESH))));
  await using edge = await startFilling(origin);
  assert.equal((await edge.get('/a.png')).status, 200);
  await eventually('cached', async () => (await edge.metric('edge_cache_bytes{tier="ram"}')) > 0);
  isHeld = true;
  const running = edge.get('/b.png');
  await eventually('it runs', () => origin.requests.length === 2);
  await edge.reload(flagsFor(origin, ['--fill.allow=https://other.test']));
  refused(await running, 403, 'reject_policy', 'not_allowed');
  assert.equal(origin.requests.length, 2, 'the fill ended before its next try');
  await eventually('closed', () => origin.open() === 0);
  assert.equal((await edge.get('/a.png')).text, 'tile');
  refused(await edge.get('/c.png'), 403, 'reject_policy', 'not_allowed');
});

test('a reload that removes an origin ends a fill that pauses before its next try', async () => {
  await using origin = await originOf((socket) => socket.write(statusAnswer(503)));
  const retry = ['--retry.live_fill.base_ms=1500', '--retry.live_fill.max_ms=1500'];
  await using edge = await startFilling(origin, { flags: retry });
  const running = edge.get('/a.png');
  await eventually('the first try', () => origin.requests.length === 1);
  await edge.reload(flagsFor(origin, [...retry, '--fill.allow=https://other.test']));
  refused(await running, 403, 'reject_policy', 'not_allowed');
  assert.equal(origin.requests.length, 1);
});

test('a reload to offline closes idle connections, and one back to live allows fills again', async () => {
  await using origin = await originOf((socket) => socket.write(answer('tile', FRESH)));
  await using edge = await startFilling(origin);
  assert.equal((await edge.get('/a.png')).status, 200);
  assert.equal(origin.open(), 1);
  await edge.reload(flagsFor(origin, ['--edge.mode=offline']));
  // Sooner than an idle connection is closed anyway.
  await eventually('closed', () => origin.open() === 0, 3000);
  refused(await edge.get('/b.png'), 403, 'reject_policy', 'not_allowed');
  await edge.reload(flagsFor(origin));
  assert.equal((await edge.get('/b.png')).status, 200);
});

for (const flag of [
  '--fill.allow=http://tiles.example.org',
  '--fill.allow=tiles.example.org',
  '--fill.allow=https://*.example.org',
  '--fill.networks=10.0.0.0/33',
  '--fill.types=image',
  '--fill.query=a b',
])
  test(`the configuration ${flag} is refused`, async () => {
    await assert.rejects(startService({ flags: [flag] }), new RegExp(flag.slice(2).split('=')[0]!));
  });

test('a second request uses the connection of the first', async () => {
  await using origin = await originOf((socket) => socket.write(answer('tile', FRESH)));
  await using edge = await startFilling(origin);
  for (const name of ['a', 'b', 'c']) assert.equal((await edge.get(`/${name}`)).status, 200);
  assert.equal(origin.accepted(), 1);
});
