import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { eventually } from '@ron/testkit';
import {
  answer,
  originOf,
  removeFiles,
  refused,
  startFilling,
  statusAnswer,
  type Filling,
  type Script,
} from './support.ts';

after(removeFiles);

const STALE = 'cache-control: max-age=0';
const MODIFIED = 'last-modified: Mon, 16 Nov 2020 05:00:00 GMT';

const statusOf = async (edge: Filling, path: string): Promise<string> =>
  String((await edge.get(path)).headers['cache-status']);

/** Answers each request with the next script; the last one repeats. */
function inTurn(...scripts: Script[]): Script {
  let at = 0;
  return (...given) => scripts[Math.min(at++, scripts.length - 1)]!(...given);
}

const sends =
  (text: string): Script =>
  (socket) =>
    void socket.write(text);

const kept = (edge: Filling): Promise<void> =>
  eventually('the note', async () => (await edge.metric('edge_cache_bytes{tier="ram"}')) > 0);

test('a stale asset is revalidated with its validators, and 304 makes it fresh', async () => {
  await using origin = await originOf(
    inTurn(sends(answer('tile', STALE, MODIFIED)), sends(statusAnswer(304, 'etag: "1"', 'cache-control: max-age=60'))),
  );
  await using edge = await startFilling(origin);
  assert.equal((await edge.get('/a.png')).text, 'tile');
  await kept(edge);
  const again = await edge.get('/a.png');
  assert.deepEqual([again.status, again.text], [200, 'tile']);
  assert.match(origin.requests[1]!, /if-none-match: "1"\r\nif-modified-since: Mon, 16 Nov 2020 05:00:00 GMT/i);
  assert.equal(await edge.metric('edge_fills_total{result="revalidated"}'), 1);
  await eventually('a hit', async () => /hit/.test(await statusOf(edge, '/a.png')));
  assert.equal(origin.requests.length, 2);
});

test('a changed asset replaces the stale one', async () => {
  await using origin = await originOf(
    inTurn(sends(answer('old', STALE)), sends(answer('new', 'etag: "2"', 'cache-control: max-age=60'))),
  );
  await using edge = await startFilling(origin);
  assert.equal((await edge.get('/a.png')).text, 'old');
  await kept(edge);
  assert.equal((await edge.get('/a.png')).text, 'new');
  await eventually('a hit', async () => /hit/.test(await statusOf(edge, '/a.png')));
  assert.equal((await edge.get('/a.png')).text, 'new');
});

for (const header of ['etag: "2"', 'etag: 2', 'set-cookie: a=b', 'vary: *'])
  test(`after 304 with ${header} the asset is fetched once without conditions`, async () => {
    await using origin = await originOf((socket, head) => {
      if (/if-none-match/i.test(head)) socket.write(statusAnswer(304, header, 'cache-control: max-age=60'));
      else socket.write(answer(`tile ${origin.requests.length}`, STALE));
    });
    await using edge = await startFilling(origin);
    assert.equal((await edge.get('/a.png')).text, 'tile 1');
    await kept(edge);
    assert.equal((await edge.get('/a.png')).text, 'tile 3');
    assert.equal(origin.requests.length, 3);
  });

test('an asset without an ETag whose 304 has one is fetched without conditions', async () => {
  const tile = answer('tile', MODIFIED, STALE).replace('etag: "1"\r\n', '');
  await using origin = await originOf((socket, head) => {
    socket.write(/if-modified-since/i.test(head) ? statusAnswer(304, 'etag: "7"') : tile);
  });
  await using edge = await startFilling(origin, { flags: ['--fill.etag=any'] });
  assert.equal((await edge.get('/a.png')).text, 'tile');
  await kept(edge);
  assert.equal((await edge.get('/a.png')).text, 'tile');
  assert.equal(origin.requests.length, 3);
});

test('304 again without conditions is 502, and the stale asset is not served as fresh', async () => {
  await using origin = await originOf(inTurn(sends(answer('tile', STALE)), sends(statusAnswer(304, 'etag: "2"'))));
  await using edge = await startFilling(origin);
  assert.equal((await edge.get('/a.png')).status, 200);
  await kept(edge);
  refused(await edge.get('/a.png'), 502, 'bad_gateway');
  assert.equal(origin.requests.length, 3);
});

test('an asset that the origin removed is 404, and the answer is kept', async () => {
  await using origin = await originOf(inTurn(sends(answer('tile', STALE)), sends(statusAnswer(410))));
  await using edge = await startFilling(origin);
  assert.equal((await edge.get('/a.png')).status, 200);
  await kept(edge);
  refused(await edge.get('/a.png'), 404, 'not_found');
  refused(await edge.get('/a.png'), 404, 'not_found');
  assert.equal(origin.requests.length, 2);
});

test('404 is kept for fill.negative_ttl, then the origin is asked again', async () => {
  await using origin = await originOf(inTurn(sends(statusAnswer(404)), sends(answer('tile', STALE))));
  await using edge = await startFilling(origin, { flags: ['--fill.negative_ttl=500ms'] });
  refused(await edge.get('/a.png'), 404, 'not_found');
  refused(await edge.get('/a.png'), 404, 'not_found');
  assert.equal(origin.requests.length, 1);
  assert.equal(await edge.metric('edge_fills_total{result="absent"}'), 1);
  await eventually('asked again', async () => (await edge.get('/a.png')).status === 200);
});

test('within stale-while-revalidate the stale asset is answered at once, and replaced behind it', async () => {
  const { promise: opened, resolve: open } = Promise.withResolvers<void>();
  await using origin = await originOf(
    inTurn(sends(answer('old', STALE)), (socket) => {
      void opened.then(() => socket.write(answer('new', 'etag: "2"', 'cache-control: max-age=60')));
    }),
  );
  await using edge = await startFilling(origin, { flags: ['--fill.stale_while_revalidate=60s'] });
  assert.equal((await edge.get('/a.png')).text, 'old');
  await kept(edge);
  for (let at = 0; at < 3; at += 1) assert.equal((await edge.get('/a.png')).text, 'old');
  await eventually('one revalidation', () => origin.requests.length === 2);
  open();
  await eventually('replaced', async () => (await edge.get('/a.png')).text === 'new');
  assert.equal(origin.requests.length, 2);
});

test('with a full queue no revalidation begins, and no request counts as refused', async () => {
  const { promise: opened, resolve: open } = Promise.withResolvers<void>();
  await using origin = await originOf(
    inTurn(sends(answer('tile', STALE)), (socket) => void opened.then(() => socket.write(answer('tile', STALE)))),
  );
  const flags = ['--edge.workers=1', '--edge.work_capacity=1', '--fill.stale_while_revalidate=1h'];
  await using edge = await startFilling(origin, { flags });
  assert.equal((await edge.get('/a.png')).status, 200);
  await kept(edge);
  const waiting = [edge.get('/1.png')];
  await eventually('one runs', () => origin.requests.length === 2);
  waiting.push(edge.get('/2.png'));
  await eventually('one waits', async () => (await edge.metric('queue_depth{queue="work"}')) === 1);
  for (let at = 0; at < 3; at += 1) assert.equal((await edge.get('/a.png')).text, 'tile');
  assert.equal(await edge.metric('busy_rejections_total{endpoint="/edge/assets"}'), 0);
  assert.equal(await edge.metric('edge_fills_total{result="refused"}'), 0);
  open();
  for (const { status } of await Promise.all(waiting)) assert.equal(status, 200);
});

for (const [control, status] of [
  ['max-age=0', 200],
  ['max-age=0, must-revalidate', 502],
  ['no-cache', 502],
] as const)
  test(`with stale-if-error and ${control}, a failing origin is answered with ${status}`, async () => {
    await using origin = await originOf(
      inTurn(sends(answer('tile', `cache-control: ${control}`)), (socket) => void socket.destroy()),
    );
    await using edge = await startFilling(origin, { flags: ['--fill.stale_if_error=60s'] });
    assert.equal((await edge.get('/a.png')).status, 200);
    await kept(edge);
    const reply = await edge.get('/a.png');
    assert.equal(reply.status, status);
    if (status === 200) assert.equal(reply.text, 'tile');
  });

test('weak and missing ETags are accepted with fill.etag = "any", and sent to revalidate', async () => {
  await using origin = await originOf(
    inTurn(
      sends(answer('tile', STALE, 'etag: W/"1"')),
      sends(statusAnswer(304, 'etag: W/"1"', 'cache-control: max-age=9')),
    ),
  );
  await using edge = await startFilling(origin, { flags: ['--fill.etag=any'] });
  assert.equal((await edge.get('/a.png')).text, 'tile');
  await kept(edge);
  assert.equal((await edge.get('/a.png')).text, 'tile');
  assert.match(origin.requests[1]!, /if-none-match: W\/"1"/i);
});
