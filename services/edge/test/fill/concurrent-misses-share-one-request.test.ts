import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { NEVER } from '@ron/kernel';
import { eventually } from '@ron/testkit';
import { answer, FRESH, originOf, refused, removeFiles, startFilling } from './support.ts';

after(removeFiles);

/** An origin that answers when the test allows it. */
function gate() {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { opened: promise, open: () => resolve() };
}

test('misses on one key share one fill, and later ones are hits', async () => {
  const { opened, open } = gate();
  await using origin = await originOf((socket) => void opened.then(() => socket.write(answer('tile', FRESH))));
  await using edge = await startFilling(origin);
  const waiting = Array.from({ length: 40 }, () => edge.get('/a.png'));
  await eventually('all wait', async () => (await edge.metric('queue_depth{queue="/edge/assets"}')) === 40);
  open();
  const replies = await Promise.all(waiting);
  assert.ok(replies.every(({ status, text }) => status === 200 && text === 'tile'));
  const collapsed = replies.filter(({ headers }) => /collapsed/.test(String(headers['cache-status'])));
  assert.equal(collapsed.length, 39);
  assert.equal((await edge.get('/a.png')).text, 'tile');
  await eventually('a hit', async () => /hit/.test(String((await edge.get('/a.png')).headers['cache-status'])));
  // A slow machine may need a second try of the one fill.
  assert.equal(await edge.metric('edge_fills_total{result="fetched"}'), 1);
});

test('a fill goes on when all its clients have left, and its asset is cached', async () => {
  const { opened, open } = gate();
  await using origin = await originOf((socket) => void opened.then(() => socket.write(answer('tile', FRESH))));
  await using edge = await startFilling(origin);
  const leaving = new AbortController();
  const left = Array.from({ length: 3 }, () => edge.send('GET', edge.pathOf('/a.png'), { signal: leaving.signal }));
  await eventually('the request', () => origin.requests.length > 0);
  leaving.abort();
  await Promise.allSettled(left);
  await eventually('no waiter', async () => (await edge.metric('queue_depth{queue="/edge/assets"}')) === 0);
  open();
  await eventually('cached', async () => (await edge.metric('edge_cache_bytes{tier="ram"}')) > 0);
  assert.match(String((await edge.get('/a.png')).headers['cache-status']), /hit/);
  assert.equal(await edge.metric('edge_fills_total{result="fetched"}'), 1);
});

test('when the leader fails, its followers get the same error, and the next request asks again', async () => {
  const { opened, open } = gate();
  let requests = 0;
  await using origin = await originOf((socket) => {
    const first = ++requests === 1;
    void opened.then(() => socket.write(answer('tile', first ? 'set-cookie: a=b' : FRESH)));
  });
  await using edge = await startFilling(origin);
  const waiting = Array.from({ length: 5 }, () => edge.get('/a.png'));
  await eventually('all wait', async () => (await edge.metric('queue_depth{queue="/edge/assets"}')) === 5);
  open();
  for (const reply of await Promise.all(waiting)) refused(reply, 502, 'bad_gateway');
  assert.equal(requests, 1);
  assert.equal((await edge.get('/a.png')).text, 'tile');
});

for (const directive of ['no-store', 'private, max-age=60'])
  test(`an answer with ${directive} is for one client: the others fetch their own, and none is cached`, async () => {
    const { opened, open } = gate();
    let requests = 0;
    await using origin = await originOf((socket) => {
      const at = ++requests;
      void opened.then(() => socket.write(answer(`tile ${at}`, `cache-control: ${directive}`)));
    });
    await using edge = await startFilling(origin);
    const waiting = Array.from({ length: 4 }, () => edge.get('/a.png'));
    await eventually('all wait', async () => (await edge.metric('queue_depth{queue="/edge/assets"}')) === 4);
    open();
    const texts = (await Promise.all(waiting)).map(({ text }) => text);
    assert.equal(new Set(texts).size, 4, texts.join());
    assert.equal(await edge.metric('edge_cache_bytes{tier="ram"}'), 0);
    assert.equal((await edge.get('/a.png')).text, 'tile 5');
  });

test('an answer with no-store above 1 MiB is 413 body_cap, because it may only stay in memory', async () => {
  const large = 'a'.repeat(1024 * 1024 + 1);
  let control = 'cache-control: no-store';
  await using origin = await originOf((socket) => socket.write(answer(large, control)));
  await using edge = await startFilling(origin);
  refused(await edge.get('/a.png'), 413, 'payload_too_large', 'body_cap');
  control = FRESH;
  assert.equal((await edge.get('/a.png')).body.length, large.length);
});

// [edge I-3] [edge I-9]
test('a full queue is 429 busy, counted for each request, and hits are answered meanwhile', async () => {
  const { opened, open } = gate();
  let isHeld = false;
  await using origin = await originOf((socket) => {
    if (isHeld) void opened.then(() => socket.write(answer('tile', FRESH)));
    else socket.write(answer('hit', FRESH));
  });
  await using edge = await startFilling(origin, { flags: ['--edge.workers=1', '--edge.work_capacity=1'] });
  assert.equal((await edge.get('/hit.png')).status, 200);
  isHeld = true;
  const first = edge.get('/1.png');
  await eventually('it runs', () => origin.requests.length > 1);
  const second = edge.get('/2.png');
  await eventually('it waits', async () => (await edge.metric('queue_depth{queue="work"}')) === 1);
  refused(await edge.get('/3.png'), 429, 'busy');
  refused(await edge.get('/3.png'), 429, 'busy');
  assert.equal(await edge.metric('busy_rejections_total{endpoint="/edge/assets"}'), 2);
  assert.equal((await edge.get('/hit.png')).text, 'hit');
  // The allow-list is checked before the queue.
  refused(await edge.send('GET', '/edge/assets/live/other.test/a'), 403, 'reject_policy', 'not_allowed');
  open();
  assert.deepEqual([(await first).status, (await second).status], [200, 200]);
});

test('more waiting requests than fill.waiters_max are 429 busy', async () => {
  const { opened, open } = gate();
  await using origin = await originOf((socket) => void opened.then(() => socket.write(answer('tile', FRESH))));
  await using edge = await startFilling(origin, { flags: ['--fill.waiters_max=2'] });
  const waiting = [edge.get('/a.png'), edge.get('/a.png')];
  await eventually('both wait', async () => (await edge.metric('queue_depth{queue="/edge/assets"}')) === 2);
  const reply = await edge.get('/a.png');
  refused(reply, 429, 'busy');
  assert.ok(Number(reply.headers['retry-after']) >= 1);
  assert.equal(await edge.metric('busy_rejections_total{endpoint="/edge/assets"}'), 1);
  open();
  for (const each of await Promise.all(waiting)) assert.equal(each.status, 200);
});

test('a request that comes after a purge does not join a fill from before it', async () => {
  const { opened, open } = gate();
  let requests = 0;
  await using origin = await originOf((socket) => {
    const text = ++requests === 1 ? 'old' : 'new';
    void opened.then(() => socket.write(answer(text, FRESH)));
  });
  await using edge = await startFilling(origin);
  const early = edge.get('/a.png');
  await eventually('the first request', () => requests === 1);
  await edge.edge.cache.purge({ key: edge.pathOf('/a.png').slice('/edge/assets/'.length) }, NEVER);
  const late = edge.get('/a.png');
  await eventually('the second request', () => requests === 2);
  open();
  assert.deepEqual([(await early).text, (await late).text], ['old', 'new']);
  assert.equal((await edge.get('/a.png')).text, 'new');
});
