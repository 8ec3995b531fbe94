import assert from 'node:assert/strict';
import { createHash, X509Certificate } from 'node:crypto';
import { after, test } from 'node:test';
import { sched } from '@ron/kernel';
import type { EdgeWhyDto } from '@ron/proto';
import { eventually } from '@ron/testkit';
import { checkEntryProof } from '@ron/tlog';
import { answer, authority, FRESH, HOST, originOf, removeFiles, startFilling, statusAnswer } from '../fill/support.ts';
import { makePmtiles } from '../packs/make-pmtiles.ts';
import { startService, type TestEdge } from '../support.ts';

after(removeFiles);

async function why(edge: Pick<TestEdge, 'call'>, path: string): Promise<EdgeWhyDto> {
  const reply = await edge.call('GET', `/edge/why?path=${encodeURIComponent(path)}`);
  assert.equal(reply.status, 200, reply.text);
  return reply.json as EdgeWhyDto;
}

async function kept(edge: Pick<TestEdge, 'metric'>, count = 1): Promise<void> {
  await eventually('the fill is kept', async () => (await edge.metric('edge_kept_total{result="kept"}')) === count);
}

test('a fill is explained with host, dialled address, certificate key, ETag and a proof that verifies', async () => {
  const tls = authority.issue({ names: `DNS:${HOST}` });
  const spki = new X509Certificate(tls.cert).publicKey.export({ type: 'spki', format: 'der' });
  await using origin = await originOf((socket) => socket.write(answer('tile', 'etag: "v1"', FRESH)), { tls });
  await using edge = await startFilling(origin);
  const path = edge.pathOf('/a%20b.png');
  const before = await why(edge, path);
  assert.deepEqual([before.tier, before.state, before.fillable], ['none', 'missing', 'yes']);
  assert.equal((await edge.send('GET', path)).text, 'tile');
  await kept(edge);
  await eventually('a checkpoint covers it', async () => (await why(edge, path)).proof !== undefined);
  const found = await why(edge, path);
  const key = `live/${HOST}:${origin.port}/a%20b.png`;
  assert.deepEqual([found.key, found.tier, found.state, found.size], [key, 'ram', 'fresh', 4]);
  const { time_ms, ...provenance } = found.provenance!;
  assert.ok(Math.abs(time_ms - sched.wall_ms()) < 60_000);
  assert.deepEqual(provenance, {
    host: `${HOST}:${origin.port}`,
    dialled: `127.0.0.1:${origin.port}`,
    certificate_key: createHash('sha256').update(spki).digest('hex'),
    etag: '"v1"',
    log_index: 0,
  });
  const { lifetime_from, lifetime_s, is_fresh, cache_control } = found.freshness!;
  assert.deepEqual([lifetime_from, lifetime_s, is_fresh, cache_control], ['max-age', 60, true, 'max-age=60']);
  const { vkeys } = (await edge.call('GET', '/edge/fills/keys')).json as { vkeys: string[] };
  const proven = JSON.parse(Buffer.from(checkEntryProof(JSON.stringify(found), vkeys).entry).toString()) as object;
  assert.deepEqual(proven, { op: 'fill', key, ...provenanceOf(found), size: 4, b3: found.address, time_ms });
});

function provenanceOf({ provenance }: EdgeWhyDto): object {
  const { host, dialled, certificate_key, etag } = provenance!;
  return { host, dialled, certificate_key, etag };
}

test('after a restart the asset is found on disk with the same provenance and proof', async () => {
  await using origin = await originOf((socket) => socket.write(answer('tile', 'cache-control: max-age=0')));
  const first = await startFilling(origin);
  const path = first.pathOf('/a.png');
  assert.equal((await first.send('GET', path)).status, 200);
  await kept(first);
  const told = await why(first, path);
  assert.deepEqual([told.state, told.freshness?.is_fresh], ['stale', false]);
  const { dir } = first;
  await first.edge[Symbol.asyncDispose]();
  await using again = await startService({ dir });
  const found = await why(again, path);
  assert.deepEqual([found.tier, found.state, found.fillable], ['cas', 'stale', 'not_allowed']);
  assert.deepEqual(found.provenance, told.provenance);
  assert.equal(found.proof?.log_index, 0);
  await first[Symbol.asyncDispose]();
});

test('an explanation changes nothing: no tile and no asset gets into memory by it', async () => {
  await using origin = await originOf((socket) => socket.write(answer('tile', FRESH)));
  const first = await startFilling(origin);
  await using _ = first;
  const path = first.pathOf('/a.png');
  assert.equal((await first.send('GET', path)).status, 200);
  await kept(first);
  await first.edge[Symbol.asyncDispose]();
  await using edge = await startService({ dir: first.dir });
  const pack = makePmtiles({ tiles: [{ z: 1, x: 0, y: 0, bytes: Buffer.from('tile') }], type: 'mvt', zooms: [1, 1] });
  await edge.send('PUT', '/edge/packs/p', { headers: await edge.allow(), body: pack });
  for (let times = 0; times < 3; times += 1) {
    assert.equal((await why(edge, path)).tier, 'cas');
    assert.equal((await why(edge, 'pack/p/1/0/0.mvt')).tier, 'pack');
  }
});

test('a short memory of a 404 is explained', async () => {
  await using origin = await originOf((socket) => socket.write(statusAnswer(404)));
  await using edge = await startFilling(origin);
  assert.equal((await edge.get('/none.png')).status, 404);
  const found = await why(edge, edge.pathOf('/none.png'));
  assert.deepEqual([found.tier, found.state], ['ram', 'negative']);
});

test('why and the log need edge:admin, and the log is not cached by others', async () => {
  await using edge = await startService({});
  const paths = ['why?path=o/x', 'fills/checkpoint', 'fills/tile/0/000', 'fills/keys', 'fills/pruned'];
  const other = await edge.allow({ scopes: ['edge:get'] });
  for (const path of paths) {
    assert.equal((await edge.send('GET', `/edge/${path}`)).status, 401, path);
    assert.equal((await edge.send('GET', `/edge/${path}`, { headers: other })).status, 403, path);
  }
  const keys = await edge.call('GET', '/edge/fills/keys');
  assert.equal(keys.headers['cache-control'], 'private, no-store');
  assert.equal((await edge.call('GET', '/edge/fills/checkpoint')).status, 404, 'an empty log has no checkpoint');
  assert.equal((await edge.call('GET', '/edge/fills/pruned')).status, 404);
});

test('bad paths are refused as in a request', async () => {
  await using edge = await startService({});
  const at = (path: string) => edge.call('GET', `/edge/why?path=${encodeURIComponent(path)}`);
  assert.equal((await edge.call('GET', '/edge/why')).status, 400);
  assert.equal((await at('nothing/x')).status, 404);
  for (const path of ['live/0x7f.1/a', 'live/h/../a', 'live/h/%zz', 'live/h/a?x=1', 'o/b3:12', 'live/u@h/a'])
    assert.equal((await at(path)).status, 400, path);
});

test('why and purge refuse every spelling that a request refuses', async () => {
  await using edge = await startService({ flags: ['--fill.query=size'] });
  for (const path of ['live/h/a%2Fb', 'live/h/x?size=1&size=2', 'live/h/%252F', 'live/h//a', 'live/h/a?size=%0a']) {
    const asked = await edge.send('GET', `/edge/assets/${path}`);
    const told = await edge.call('GET', `/edge/why?path=${encodeURIComponent(path)}`);
    const purge = await edge.call('POST', '/edge/purge', { key: path });
    assert.deepEqual([asked.status, told.status, purge.status], [400, 400, 400], path);
  }
});

test('tiles and files of packs are explained by their pack', async () => {
  await using edge = await startService({});
  const pack = makePmtiles({ tiles: [{ z: 1, x: 0, y: 0, bytes: Buffer.from('tile') }], type: 'mvt', zooms: [1, 1] });
  const put = await edge.send('PUT', '/edge/packs/p', { headers: await edge.allow(), body: pack });
  const { address } = put.json as { address: string };
  const tile = await edge.send('GET', '/edge/assets/pack/p/1/0/0.pbf');
  const found = await why(edge, 'pack/p/1/0/0.pbf');
  assert.deepEqual(found.pack, { name: 'p', address, format: 'pmtiles' });
  assert.deepEqual([found.key, found.state], ['pack/p/1/0/0.mvt', 'fresh']);
  // A tile is kept in memory once it is used often enough.
  assert.ok(found.tier === 'pack' || found.tier === 'ram', found.tier);
  assert.equal(`"${found.address}"`, tile.headers['etag']);
  const absent = await why(edge, 'pack/p/1/1/1.mvt');
  assert.deepEqual([absent.tier, absent.state, absent.fillable], ['none', 'missing', 'not_fillable']);
  const file = await why(edge, '/edge/assets/pack/p.pmtiles');
  assert.deepEqual([file.tier, file.address, file.size], ['pack', address, pack.length]);
  assert.equal((await why(edge, 'pack/none.json')).pack, null);
});
