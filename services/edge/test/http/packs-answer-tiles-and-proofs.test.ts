/** Tiles, TileJSON and the file of a pack: presence, extensions, codings, URLs and proofs. */
import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { brotliDecompressSync, zstdDecompressSync } from 'node:zlib';
import { addressBytes, type Address } from '@ron/proto';
import { verifySlice } from '@ron/simd';
import { bytesOf, eventually, tempDir } from '@ron/testkit';
import { addressOf } from '@ron/testkit/service';
import { makePmtiles, type Codec } from '../packs/make-pmtiles.ts';
import { startService, type TestEdge } from '../support.ts';

const TILE = bytesOf(150_000);
const tiles = [{ z: 1, x: 0, y: 0, bytes: TILE }];
const metadata = { name: 'A map', attribution: '(c) all', vector_layers: [{ id: 'roads', fields: {} }], other: 1 };
const PACK = makePmtiles({ tiles, type: 'mvt', zooms: [1, 2], metadata });

let service: TestEdge;
const resources = new AsyncDisposableStack();
before(async () => {
  const { path: dir } = resources.use(await tempDir());
  await mkdir(join(dir, 'packs'));
  const save = (name: string, bytes: Uint8Array): Promise<void> =>
    writeFile(join(dir, 'packs', `${name}.pmtiles`), bytes);
  await save('plain', PACK);
  for (const tile_codec of ['br', 'zstd'] as const)
    await save(tile_codec, makePmtiles({ tiles, type: 'mvt', tile_codec }));
  service = resources.use(await startService({ dir }));
  await eventually('the packs are mounted', () => service.edge.packs.list().length === 3);
});
after(() => resources.disposeAsync());

const get = (path: string, headers: Readonly<Record<string, string>> = {}) =>
  service.send('GET', `/edge/assets/pack/${path}`, { headers });

test('204 at a valid place without a tile, 404 at any other place and for another extension', async () => {
  const absent = await get('plain/1/1/0.mvt');
  assert.equal(absent.status, 204);
  assert.equal(absent.headers['cache-control'], 'max-age=60');
  assert.equal(absent.headers['etag'], undefined);
  assert.equal(absent.body.length, 0);
  for (const path of ['1/2/0.mvt', '1/0/2.mvt', '0/0/0.mvt', '3/0/0.mvt', '30/0/0.mvt', '1/0/0.png', '1/0/0.json'])
    assert.equal((await get(`plain/${path}`)).status, 404, path);
  assert.equal((await get('none/1/0/0.mvt')).status, 404);
});

test('pbf is another name of mvt', async () => {
  const { status, body, headers } = await get('plain/1/0/0.pbf');
  assert.equal(status, 200);
  assert.equal(headers['content-type'], 'application/vnd.mapbox-vector-tile');
  assert.ok(body.equals(TILE));
});

for (const [codec, decode] of [
  ['br', brotliDecompressSync],
  ['zstd', zstdDecompressSync],
] as const satisfies readonly (readonly [Codec, (bytes: Buffer) => Buffer])[]) {
  test(`tiles that are stored as ${codec} are sent as they are, or decoded`, async () => {
    const stored = await get(`${codec}/1/0/0.mvt`, { 'accept-encoding': `gzip, ${codec}` });
    assert.equal(stored.headers['content-encoding'], codec);
    assert.ok(decode(stored.body).equals(TILE));
    assert.equal(stored.headers['etag'], `"${addressOf(stored.body)}"`);
    const plain = await get(`${codec}/1/0/0.mvt`);
    assert.equal(plain.headers['content-encoding'], undefined);
    assert.ok(plain.body.equals(TILE));
    assert.equal(plain.headers['etag'], `"${addressOf(TILE)}"`);
    assert.equal(plain.headers['vary'], 'Accept-Encoding');
  });
}

test('a tile that was read twice is answered from memory, and answers are counted by tier', async () => {
  const before_count = await service.metric('edge_hits_total{tier="ram"}');
  for (let i = 0; i < 2; i += 1) assert.equal((await get('plain/1/0/0.mvt')).status, 200);
  const { headers } = await get('plain/1/0/0.mvt');
  assert.equal(headers['cache-status'], 'ron-edge; hit; detail=ram');
  assert.ok((await service.metric('edge_hits_total{tier="ram"}')) > before_count);
  assert.ok((await service.metric('edge_hits_total{tier="pack"}')) > 0);
});

test('TileJSON 3 describes the pack, with URLs of the checked host or of edge.public_url', async () => {
  const reply = await get('plain.json');
  assert.equal(reply.status, 200);
  assert.equal(reply.headers['content-type'], 'application/json');
  assert.equal(reply.headers['cache-status'], 'ron-edge; hit; detail=pack');
  assert.equal(reply.headers['etag'], `"${addressOf(reply.body)}"`);
  const { bounds, ...described } = reply.json;
  assert.equal(bounds.length, 4);
  assert.deepEqual(
    { ...described, center: undefined },
    {
      tilejson: '3.0.0',
      tiles: [`${service.url}/edge/assets/pack/plain/{z}/{x}/{y}.mvt`],
      name: 'A map',
      attribution: '(c) all',
      scheme: 'xyz',
      minzoom: 1,
      maxzoom: 2,
      vector_layers: metadata.vector_layers,
      center: undefined,
    },
  );
  const evil = await get('plain.json', { host: 'evil.example' });
  assert.equal(evil.status, 421, 'a host that is not served is in no document');
  const { path: dir } = resources.use(await tempDir());
  await mkdir(join(dir, 'packs'));
  await writeFile(join(dir, 'packs', 'plain.pmtiles'), PACK);
  const flags = ['--edge.public_url=https://cdn.example.org/maps/'];
  await using other = await startService({ dir, flags });
  await eventually('the pack is mounted', () => other.edge.packs.list().length === 1);
  const { json } = await other.send('GET', '/edge/assets/pack/plain.json');
  assert.deepEqual(json.tiles, ['https://cdn.example.org/maps/edge/assets/pack/plain/{z}/{x}/{y}.mvt']);
});

test('the file of a pack is sent in ranges, and slices prove their bytes against the address', async () => {
  const range = await get('plain.pmtiles', { range: 'bytes=70000-140000' });
  assert.equal(range.status, 206);
  assert.ok(range.body.equals(PACK.subarray(70_000, 140_001)));
  assert.equal(range.headers['etag'], `"${addressOf(PACK)}"`);
  for (const [offset, length] of [
    [0, 10],
    [65_536, 65_536],
    [100_000, 30_000],
    [0, PACK.length],
    [PACK.length, 1],
  ] as const) {
    const slice = await get(`plain.pmtiles?proof=bao&offset=${offset}&length=${length}`);
    assert.equal(slice.status, 200, slice.text.slice(0, 200));
    assert.equal(slice.headers['content-type'], 'application/vnd.ron.bao');
    assert.equal(slice.headers['content-length'], String(slice.body.length));
    const proven: Uint8Array[] = [];
    const pieces = verifySlice(piecesOf(slice.body), {
      hash: addressBytes(addressOf(PACK) as Address),
      offset,
      length,
      group_bytes: Number(slice.headers['ron-group-bytes']),
    });
    for await (const piece of pieces) proven.push(piece);
    assert.ok(Buffer.concat(proven).equals(PACK.subarray(offset, offset + length)), `${offset}+${length}`);
  }
  const ranged = await get('plain.pmtiles?proof=bao', { range: 'bytes=0-1' });
  assert.equal(ranged.status, 200, 'a slice has no ranges');
  for (const query of ['offset=1', 'proof=x', 'proof=bao&length=-1', 'proof=bao&proof=bao', 'proof=bao&x=1'])
    assert.equal((await get(`plain.pmtiles?${query}`)).status, 400, query);
});

async function* piecesOf(bytes: Buffer): AsyncGenerator<Uint8Array, void, void> {
  for (let at = 0; at < bytes.length; at += 10_000) yield bytes.subarray(at, at + 10_000);
}
