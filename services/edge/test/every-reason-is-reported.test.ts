/** Each reason is read from the status, `X-Reason`, the problem and the metric; other refusals have none. */
import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { eventually, tempDir } from '@ron/testkit';
import type { Reply } from '@ron/testkit/service';
import { REASON_NAMES, type Reason } from '../src/reasons.ts';
import { answer, HOST, originOf, refused, removeFiles, startFilling } from './fill/support.ts';
import { makePmtiles } from './packs/make-pmtiles.ts';
import { AMNESIA, startService, type TestEdge } from './support.ts';

after(removeFiles);

const LIVE = '/edge/assets/live/tiles.example.org/a.png';

async function assertCounted(service: TestEdge, wanted: Partial<Record<Reason, number>>): Promise<void> {
  const text = await service.metrics.text();
  const found = text.matchAll(/^edge_rejects_total\{reason="(\w+)"\} (\d+)$/gm);
  const counts = Object.fromEntries(Array.from(found, ([, reason, count]) => [reason!, Number(count)]));
  assert.deepEqual(counts, { ...Object.fromEntries(REASON_NAMES.map((reason) => [reason, 0])), ...wanted });
}

/** A service with one pack whose tiles are given. */
async function withPack(tiles: readonly Buffer[], flags: readonly string[] = []) {
  const temp = await tempDir();
  await mkdir(join(temp.path, 'packs'));
  const all = tiles.map((bytes, x) => ({ z: 2, x, y: 0, bytes }));
  const pack = makePmtiles({ tiles: all, type: 'mvt', tile_codec: 'gzip' });
  await writeFile(join(temp.path, 'packs', 'p.pmtiles'), pack);
  const service = await startService({ dir: temp.path, flags });
  await eventually('the pack is mounted', () => service.edge.packs.list().length === 1);
  const end = async (): Promise<void> => {
    await service[Symbol.asyncDispose]();
    await temp[Symbol.asyncDispose]();
  };
  return { service, pack, [Symbol.asyncDispose]: end };
}

test('not_allowed: a missing asset in offline mode, and an origin that is not in the list', async () => {
  await using offline = await startService();
  refused(await offline.send('GET', LIVE), 403, 'reject_policy', 'not_allowed');
  refused(await offline.send('GET', LIVE), 403, 'reject_policy', 'not_allowed');
  await assertCounted(offline, { not_allowed: 2 });
  await using live = await startService({ flags: ['--edge.mode=live', '--fill.allow=https://other.example.org'] });
  refused(await live.send('GET', LIVE), 403, 'reject_policy', 'not_allowed');
  const head = await live.send('HEAD', LIVE);
  assert.equal(head.status, 403);
  assert.equal(head.headers['x-reason'], 'not_allowed');
  await assertCounted(live, { not_allowed: 2 });
});

test('amnesia: an upload of a pack, and a fill if that is refused', async () => {
  const flags = [...AMNESIA, '--amnesia.fill=refuse', '--edge.mode=live', '--fill.allow=https://tiles.example.org'];
  await using service = await startService({ flags });
  const upload = await service.send('PUT', '/edge/packs/p', { body: 'PMTiles', headers: await service.allow() });
  refused(upload, 403, 'reject_policy', 'amnesia');
  refused(await service.send('GET', LIVE), 403, 'reject_policy', 'amnesia');
  await assertCounted(service, { amnesia: 2 });
});

test('body_cap: a body, a pack and an asset of an origin above their limits', async () => {
  await using origin = await originOf((socket) => void socket.write(answer('x'.repeat(2000))));
  const flags = ['--packs.bytes_max=1KiB', '--fill.object_bytes_max=1KiB'];
  await using service = await startFilling(origin, { flags });
  const headers = { ...(await service.allow()), 'content-type': 'application/json' };
  const body = JSON.stringify({ key: 'x'.repeat(1024 * 1024) });
  refused(await service.send('POST', '/edge/purge', { body, headers }), 413, 'payload_too_large', 'body_cap');
  const pack = await service.send('PUT', '/edge/packs/p', { body: Buffer.alloc(1025), headers: await service.allow() });
  refused(pack, 413, 'payload_too_large', 'body_cap');
  refused(await service.get('/a.png'), 413, 'payload_too_large', 'body_cap');
  await assertCounted(service, { body_cap: 3 });
});

test('decompress_cap: a request, a fill and a tile that expand more than ten times or to more than 10 MiB', async () => {
  const bomb = gzipSync(Buffer.alloc(1024 * 1024));
  const origin_bomb = (socket: { write(bytes: string | Buffer): unknown }): void => {
    const lines = ['content-type: image/png', 'etag: "1"', 'content-encoding: gzip', `content-length: ${bomb.length}`];
    socket.write(`HTTP/1.1 200 OK\r\n${lines.join('\r\n')}\r\n\r\n`);
    socket.write(bomb);
  };
  await using origin = await originOf(origin_bomb);
  await using filling = await startFilling(origin);
  refused(await filling.get('/a.png'), 413, 'decompress_cap', 'decompress_cap');
  const headers = { ...(await filling.allow()), 'content-type': 'application/json', 'content-encoding': 'gzip' };
  const request = gzipSync(JSON.stringify({ key: 'x'.repeat(500_000) }));
  refused(
    await filling.send('POST', '/edge/purge', { body: request, headers }),
    413,
    'decompress_cap',
    'decompress_cap',
  );
  await assertCounted(filling, { decompress_cap: 2 });
  // Hexadecimal digits take half their size, so only the absolute limit applies to the second tile.
  const noise = Buffer.alloc(11 * 1024 * 1024);
  for (let i = 0, state = 1; i < noise.length; i += 1) {
    state = (state * 1_103_515_245 + 12_345) % 2 ** 31;
    noise[i] = 97 + ((state >> 16) % 16);
  }
  await using packed = await withPack([Buffer.alloc(1024 * 1024), noise]);
  for (const x of [0, 1]) {
    const path = `/edge/assets/pack/p/2/${x}/0.mvt`;
    refused(await packed.service.send('GET', path), 413, 'decompress_cap', 'decompress_cap');
    const stored = await packed.service.send('GET', path, { headers: { 'accept-encoding': 'gzip' } });
    assert.equal(stored.status, 200, 'the stored coding is sent without decoding it');
  }
  await assertCounted(packed.service, { decompress_cap: 2 });
});

test('invalid_range: a range outside of the asset', async () => {
  await using packed = await withPack([Buffer.from('a tile')]);
  const { service, pack } = packed;
  const headers = { range: `bytes=${pack.length}-` };
  const reply = await service.send('GET', '/edge/assets/pack/p.pmtiles', { headers });
  refused(reply, 416, 'range_not_satisfiable', 'invalid_range');
  assert.equal(reply.headers['content-range'], `bytes */${pack.length}`);
  const tile = await service.send('GET', '/edge/assets/pack/p/2/0/0.mvt', { headers });
  refused(tile, 416, 'range_not_satisfiable', 'invalid_range');
  await assertCounted(service, { invalid_range: 2 });
});

test('rate_limit: requests above ingress.rps_limit', async () => {
  await using service = await startService({ flags: ['--ingress.rps_limit=1', '--server.rps_burst=1'] });
  const replies: Reply[] = [];
  for (let i = 0; i < 4; i += 1) replies.push(await service.send('GET', '/edge/assets/pack/none.json'));
  const limited = replies.filter(({ status }) => status === 429);
  assert.ok(limited.length >= 2);
  for (const reply of limited) {
    refused(reply, 429, 'rate_limited', 'rate_limit');
    assert.ok(Number(reply.headers['retry-after']) >= 1);
  }
  await assertCounted(service, { rate_limit: limited.length });
});

test('etag_invalid: an origin without a strong ETag', async () => {
  const tags = ['etag: W/"1"', 'etag: unquoted', 'etag: "a'];
  await using origin = await originOf((socket, head) => {
    const [, index] = /^GET \/(\d)/.exec(head)!;
    socket.write(answer('x', tags[Number(index)]!));
  });
  await using service = await startFilling(origin);
  for (const index of tags.keys()) refused(await service.get(`/${index}.png`), 502, 'bad_gateway', 'etag_invalid');
  await assertCounted(service, { etag_invalid: tags.length });
});

test('timeout: an origin that does not answer within the budget of the request', async () => {
  await using origin = await originOf(() => undefined);
  await using service = await startFilling(origin, { flags: ['--ingress.timeout_secs=1'] });
  refused(await service.get('/a.png'), 504, 'timeout', 'timeout');
  await assertCounted(service, { timeout: 1 });
});

test('other refusals have no reason', async () => {
  await using origin = await originOf(
    (socket) => void socket.write('HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n'),
  );
  await using service = await startFilling(origin);
  refused(await service.get('/a.png'), 502, 'bad_gateway');
  refused(await service.get('/b.png', { 'cache-control': 'only-if-cached' }), 504, 'not_cached');
  refused(await service.send('GET', '/edge/assets/pack/none/0/0/0.png'), 404, 'not_found');
  refused(await service.send('GET', `/edge/assets/live/${HOST}:1x/a`), 400, 'bad_request');
  refused(await service.send('GET', '/edge/packs'), 401, 'unauthorized');
  await assertCounted(service, {});
});
