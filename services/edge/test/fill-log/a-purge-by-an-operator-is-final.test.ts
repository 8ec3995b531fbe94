import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { eventually } from '@ron/testkit';
import { answer, FRESH, HOST, originOf, removeFiles, startFilling, type Filling } from '../fill/support.ts';

after(removeFiles);

async function filled(edge: Filling, ...paths: readonly string[]): Promise<void> {
  const before = await edge.metric('edge_kept_total{result="kept"}');
  for (const path of paths) assert.equal((await edge.get(path)).status, 200);
  const wanted = before + paths.length;
  await eventually('all are kept', async () => (await edge.metric('edge_kept_total{result="kept"}')) === wanted);
}

const statusOf = async (edge: Filling, path: string): Promise<string> =>
  String((await edge.get(path)).headers['cache-status']);

test('a key in any spelling, a prefix and a host are removed; other assets stay', async () => {
  await using origin = await originOf((socket) => socket.write(answer('tile', FRESH)));
  await using edge = await startFilling(origin);
  const host = `${HOST}:${origin.port}`;
  const purge = async (body: unknown): Promise<number> => {
    const reply = await edge.call('POST', '/edge/purge', body);
    assert.equal(reply.status, 200, reply.text);
    return (reply.json as { removed: number }).removed;
  };
  await filled(edge, '/a%20b.png', '/dir/1.png', '/dir/2.png', '/other.png');
  assert.equal(await purge({ key: `live/${host.toUpperCase()}/%61 b.png` }), 1);
  assert.match(await statusOf(edge, '/a%20b.png'), /fwd=miss/);
  assert.match(await statusOf(edge, '/dir/1.png'), /hit/);
  await eventually('kept again', async () => (await edge.metric('edge_kept_total{result="kept"}')) === 5);
  assert.equal(await purge({ prefix: `live/${host}/dir/` }), 2);
  assert.match(await statusOf(edge, '/other.png'), /hit/);
  await eventually('a second purge finds nothing', async () => (await purge({ prefix: `live/${host}/dir/` })) === 0);
  assert.equal(await purge({ host }), 2);
  assert.match(await statusOf(edge, '/other.png'), /fwd=miss/);
});

test('a prefix in any spelling removes the assets, or is refused', async () => {
  await using origin = await originOf((socket) => socket.write(answer('tile', FRESH)));
  await using edge = await startFilling(origin);
  const host = `${HOST}:${origin.port}`;
  const purge = async (prefix: string): Promise<unknown> => {
    const reply = await edge.call('POST', '/edge/purge', { prefix });
    return reply.status === 200 ? (reply.json as { removed: number }).removed : reply.status;
  };
  const paths = ['/%C3%A9/x', '/(1)/x', '/a%20b/x', '/c/x', '/d/xy'];
  await filled(edge, ...paths);
  const spellings = [`${host}/\u00e9/`, `${host}/(1)/`, `${host}/a b/`, `${host.toUpperCase()}/c/`, `${host}/%64/x`];
  for (const spelling of spellings) assert.equal(await purge(`live/${spelling}`), 1, spelling);
  for (const bad of [`live/${host}`, `live/${host}/a%2F`, `live/${host}/%C3`, 'live/u@h/', 'o/x', 'pack/A'])
    assert.equal(await purge(bad), 400, bad);
  for (const good of ['live/', 'o/', 'o/b3:0a', 'pack/', 'pack/p/1/']) assert.equal(await purge(good), 0, good);
});

test('a fill that began before a purge answers its client and is not kept', async () => {
  const { promise: opened, resolve: open } = Promise.withResolvers<void>();
  await using origin = await originOf((socket) => void opened.then(() => socket.write(answer('tile', FRESH))));
  await using edge = await startFilling(origin);
  const waiting = edge.get('/a.png');
  await eventually('the origin has the request', () => origin.requests.length === 1);
  const purged = await edge.call('POST', '/edge/purge', { host: `${HOST}:${origin.port}` });
  assert.deepEqual(purged.json, { removed: 0 });
  open();
  assert.equal((await waiting).text, 'tile');
  await eventually('the fill has ended', async () => (await edge.metric('edge_fills_total{result="fetched"}')) === 1);
  await eventually('nothing waits', async () => (await edge.metric('queue_depth{queue="fills"}')) === 0);
  assert.match(await statusOf(edge, '/a.png'), /fwd=miss/);
  assert.equal(origin.requests.length, 2);
});

test('a purge needs edge:admin and exactly one selection', async () => {
  await using origin = await originOf(() => undefined);
  await using edge = await startFilling(origin);
  const body = JSON.stringify({ host: HOST });
  const type = { 'content-type': 'application/json' };
  assert.equal((await edge.send('POST', '/edge/purge', { headers: type, body })).status, 401);
  const reader = await edge.allow({ scopes: ['edge:get'] });
  assert.equal((await edge.send('POST', '/edge/purge', { headers: { ...type, ...reader }, body })).status, 403);
  for (const bad of [
    {},
    { host: HOST, prefix: 'live/' },
    { host: 'user@host' },
    { host: '' },
    { prefix: 'x' },
    { prefix: '' },
    { key: 'pack/a/0/0/0.png' },
    { key: 'live/h/../x' },
    { other: 1 },
  ])
    assert.equal((await edge.call('POST', '/edge/purge', bad)).status, 400, JSON.stringify(bad));
});
