import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { eventually } from '@ron/testkit';
import { answer, FRESH, HOST, originOf, removeFiles, startFilling, statusAnswer, type Filling } from './support.ts';

after(removeFiles);

const STALE = 'cache-control: max-age=0';

const keptFills = (edge: Filling, count: number): Promise<void> =>
  eventually('kept', async () => (await edge.metric('edge_kept_total{result="kept"}')) === count);

async function purge(edge: Filling, port: number): Promise<void> {
  assert.deepEqual((await edge.call('POST', '/edge/purge', { host: `${HOST}:${port}` })).json, { removed: 1 });
}

test('a request that waited for an answer of another client does not revalidate an asset that was purged', async () => {
  const { promise: opened, resolve: open } = Promise.withResolvers<void>();
  await using origin = await originOf((socket, head) => {
    const at = origin.requests.length;
    if (at === 1) socket.write(answer('purged', STALE));
    else if (at === 2) void opened.then(() => socket.write(answer('private', 'etag: "2"', 'cache-control: private')));
    else if (/if-none-match: "1"/i.test(head)) socket.write(statusAnswer(304, 'etag: "1"', FRESH));
    else socket.write(answer('new', 'etag: "3"', FRESH));
  });
  await using edge = await startFilling(origin);
  assert.equal((await edge.get('/a.png')).text, 'purged');
  await keptFills(edge, 1);
  const leader = edge.get('/a.png');
  await eventually('the second request', () => origin.requests.length === 2);
  const follower = edge.get('/a.png');
  await eventually('both wait', async () => (await edge.metric('queue_depth{queue="/edge/assets"}')) === 2);
  await purge(edge, origin.port);
  open();
  assert.deepEqual([(await leader).text, (await follower).text], ['private', 'new']);
  assert.doesNotMatch(origin.requests[2]!, /if-none-match/i);
  assert.equal((await edge.get('/a.png')).text, 'new');
});

test('an asset that is purged while it is looked up is fetched anew', async () => {
  await using origin = await originOf((socket, head) => {
    if (origin.requests.length === 1) socket.write(answer('purged', STALE));
    else if (/if-none-match/i.test(head)) socket.write(statusAnswer(304, 'etag: "1"', FRESH));
    else socket.write(answer('new', 'etag: "2"', FRESH));
  });
  await using edge = await startFilling(origin);
  assert.equal((await edge.get('/a.png')).text, 'purged');
  await keptFills(edge, 1);
  const { cache } = edge.edge;
  cache.ram.deleteWhere(() => true);
  const found = Promise.withResolvers<void>();
  const { promise: opened, resolve: open } = Promise.withResolvers<void>();
  const find = cache.find.bind(cache);
  cache.find = async (...given) => {
    const asset = await find(...given);
    found.resolve();
    await opened;
    return asset;
  };
  const waiting = edge.get('/a.png');
  await found.promise;
  await purge(edge, origin.port);
  open();
  assert.equal((await waiting).text, 'new');
  cache.find = find;
  assert.equal((await edge.get('/a.png')).text, 'new');
});
