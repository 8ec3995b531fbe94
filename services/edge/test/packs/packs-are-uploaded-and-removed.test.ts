/** `PUT`, `GET` and `DELETE` of packs over HTTP: accepted packs are served and durable, refused ones leave nothing. */
import assert from 'node:assert/strict';
import { mkdir, readdir, readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { mountTmpfs, NO_MOUNT, tempDir } from '@ron/testkit';
import { addressOf, assertRefusal } from '@ron/testkit/service';
import { AMNESIA, startService } from '../support.ts';
import { fixture } from './pack-fixtures.ts';
import {
  mountPack,
  packFiles,
  packsDir,
  putPack,
  readTile,
  someMbtiles,
  somePmtiles,
  tileOf,
  untilReady,
} from './registry-support.ts';

test('uploaded packs of both formats are listed, served, replaced, kept over a restart and removed', async () => {
  await using temp = await tempDir();
  const dir = `${temp.path}/data`;
  const first = { pm: somePmtiles(1), mb: await someMbtiles(2) };
  {
    await using edge = await startService({ dir });
    await untilReady(edge);
    const reply = await putPack(edge, 'pm', first.pm, `?expect=${addressOf(first.pm)}`);
    assert.equal(reply.status, 201, reply.text);
    const { name, format, tiles, zooms, bounds } = reply.json;
    assert.deepEqual([name, format, tiles, zooms], ['pm', 'pmtiles', 21, [0, 2]]);
    assert.equal(bounds.length, 4);
    await mountPack(edge, 'mb', first.mb);
    const { packs, bad } = (await edge.call('GET', '/edge/packs')).json;
    assert.deepEqual(
      packs.map((pack: { name: string; address: string }) => [pack.name, pack.address]),
      [
        ['mb', addressOf(first.mb)],
        ['pm', addressOf(first.pm)],
      ],
    );
    assert.deepEqual(bad, []);
    await mountPack(edge, 'pm', somePmtiles(3));
    assert.deepEqual(await readTile(edge, 'pm'), Buffer.from(tileOf(3, 2, 3, 1)));
    assert.deepEqual(await readTile(edge, 'mb'), Buffer.from(tileOf(2, 2, 3, 1)));
  }
  await using edge = await startService({ dir });
  await untilReady(edge);
  assert.deepEqual(await readTile(edge, 'pm'), Buffer.from(tileOf(3, 2, 3, 1)));
  assert.equal((await edge.call('DELETE', '/edge/packs/pm')).status, 204);
  assertRefusal(await edge.call('DELETE', '/edge/packs/pm'), 404, 'not_found');
  assertRefusal(await edge.send('GET', '/edge/assets/pack/pm/2/3/1.png'), 404, 'not_found');
  assert.deepEqual(await packFiles(edge), ['mb.mbtiles']);
  assert.deepEqual(await readdir(packsDir(edge)), ['mb.mbtiles']);
});

test('bad packs are refused with the reason, nothing is kept, and the mounted version stays', async (t) => {
  await using edge = await startService({ flags: ['--packs.bytes_max=1MiB'] });
  await untilReady(edge);
  await mountPack(edge, 'a', somePmtiles(1));
  const good = somePmtiles(2);
  const cases: (readonly [Buffer, RegExp, string?])[] = [
    [Buffer.from('neither a pack nor a database'), /neither a PMTiles nor an MBTiles/],
    [Buffer.alloc(0), /neither/],
    [good.subarray(0, good.length - 1), /./],
    [good.subarray(0, 100), /./],
    [good, /not the expected/, `?expect=${addressOf(Buffer.from('another'))}`],
  ];
  for (const [body, reason, query] of cases) {
    const reply = await putPack(edge, 'a', body, query);
    assertRefusal(reply, 400, 'validation');
    assert.match(reply.problem!.detail, reason);
  }
  const database = Buffer.concat([Buffer.from('SQLite format 3\0'), Buffer.alloc(4096)]);
  assertRefusal(await putPack(edge, 'bad', database), 400, 'validation');
  for (const [file, reason] of [
    ['pm-invalid.pmtiles', /./],
    ['pm-future-version.pmtiles', /version/],
    ['mb-corrupt.mbtiles', /damaged/],
  ] as const) {
    const path = fixture(file);
    if (path === undefined) {
      t.diagnostic(`${file} is not in ../shared/fixtures`);
      continue;
    }
    const reply = await putPack(edge, 'bad', await readFile(path));
    assertRefusal(reply, 400, 'validation');
    assert.match(reply.problem!.detail, reason);
  }
  const large = await putPack(edge, 'a', Buffer.concat([good, Buffer.alloc(1024 * 1024)]));
  assertRefusal(large, 413, 'payload_too_large');
  assert.equal(large.headers['x-reason'], 'body_cap');
  assertRefusal(await putPack(edge, 'a', await someMbtiles(2)), 409, 'conflict');
  assert.deepEqual(await readdir(packsDir(edge)), ['a.pmtiles', 'a.pmtiles.b3']);
  assert.deepEqual(await readTile(edge, 'a'), Buffer.from(tileOf(1, 2, 3, 1)));
});

test('good fixtures are accepted', async (t) => {
  await using edge = await startService();
  await untilReady(edge);
  for (const file of ['pm-tiny.pmtiles', 'pm-raster-z3.pmtiles', 'mb-plain.mbtiles']) {
    const path = fixture(file);
    if (path === undefined) return t.skip('../shared/fixtures is not there');
    const name = file.slice(0, file.indexOf('.'));
    await mountPack(edge, name, await readFile(path));
  }
});

test('names, parameters and scopes are checked before a byte is kept', async () => {
  await using edge = await startService();
  await untilReady(edge);
  const body = somePmtiles(1);
  for (const name of ['A', 'a.b', 'a%2fb', '..', 'a'.repeat(65), 'ä']) {
    const reply = await putPack(edge, name, body);
    assert.ok([400, 404].includes(reply.status), `${name}: ${reply.status}`);
  }
  for (const query of ['?expect=b3:00', '?address=x', '?other=1']) {
    assertRefusal(await putPack(edge, 'a', body, query), 400, 'validation');
  }
  const address = `?address=${addressOf(body)}`;
  assertRefusal(await putPack(edge, 'a', body, address), 400, 'validation');
  const without_storage = await putPack(edge, 'a', Buffer.alloc(0), address);
  assertRefusal(without_storage, 400, 'validation');
  assert.match(without_storage.problem!.detail, /edge.storage_url/);
  const reads = await edge.allow({ scopes: ['edge:get'] });
  for (const [method, path] of [
    ['GET', '/edge/packs'],
    ['PUT', '/edge/packs/a'],
    ['DELETE', '/edge/packs/a'],
  ] as const) {
    assertRefusal(await edge.send(method, path), 401, 'unauthorized');
    assertRefusal(await edge.send(method, path, { headers: reads }), 403, 'forbidden');
  }
  assert.deepEqual(await readdir(packsDir(edge)), []);
});

test('in amnesia packs are read from packs.dir, and uploads and removals are refused', async () => {
  await using temp = await tempDir();
  await using filled = await startService({ flags: [`--packs.dir=${temp.path}`] });
  await untilReady(filled);
  await mountPack(filled, 'a', somePmtiles(1));
  const before = await readdir(temp.path);
  await using edge = await startService({ flags: [...AMNESIA, `--packs.dir=${temp.path}`] });
  await untilReady(edge);
  assert.deepEqual(await readTile(edge, 'a'), Buffer.from(tileOf(1, 2, 3, 1)));
  const put = await putPack(edge, 'b', somePmtiles(2));
  assertRefusal(put, 403, 'reject_policy');
  assert.equal(put.headers['x-reason'], 'amnesia');
  assertRefusal(await edge.call('DELETE', '/edge/packs/a'), 403, 'reject_policy');
  assert.equal(await edge.metric('edge_rejects_total{reason="amnesia"}'), 2);
  assert.deepEqual(await readdir(temp.path), before);
});

test('a full disk refuses an upload with 507 and keeps nothing of it', async (t) => {
  await using temp = await tempDir();
  const dir = `${temp.path}/packs`;
  await mkdir(dir);
  using disk = mountTmpfs(dir, '1m');
  if (disk === undefined) return t.skip(NO_MOUNT);
  await using edge = await startService({ flags: [`--packs.dir=${dir}`] });
  await untilReady(edge);
  await mountPack(edge, 'a', somePmtiles(1));
  const before = await readdir(dir);
  const large = Buffer.concat([somePmtiles(2), Buffer.alloc(2 * 1024 * 1024)]);
  assertRefusal(await putPack(edge, 'a', large), 507, 'storage_full');
  assert.deepEqual(await readdir(dir), before);
  assert.deepEqual(await readTile(edge, 'a'), Buffer.from(tileOf(1, 2, 3, 1)));
});
