/** A byte of a mounted PMTiles pack changes on disk while clients read it over HTTP. */
import assert from 'node:assert/strict';
import { open, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { eventually } from '@ron/testkit';
import { addressOf, assertRefusal, type Reply } from '@ron/testkit/service';
import { startService, type TestEdge } from '../support.ts';
import { makePmtiles } from './make-pmtiles.ts';
import { someTiles } from './pack-fixtures.ts';
import { gateReason, isReady, mountPack, packsDir, untilReady } from './registry-support.ts';

const TILES = someTiles(3, 9000);
const FILE = makePmtiles({ tiles: TILES, leaf_entries: 16 });
const pathOf = ({ z, x, y }: (typeof TILES)[number]): string => `/edge/assets/pack/a/${z}/${x}/${y}.png`;

/** Why a file is refused; empty if none is. */
async function badReason(edge: TestEdge): Promise<string> {
  const { bad } = (await edge.call('GET', '/edge/packs')).json;
  return bad[0]?.reason ?? '';
}

test('a flipped byte is never sent: the pack answers 503 until a good copy is mounted', async () => {
  await using edge = await startService();
  await untilReady(edge);
  await mountPack(edge, 'a', FILE);
  const counts = { good: 0, refused: 0 };
  const ends = new AbortController();
  const clients = Array.from({ length: 4 }, async (_, client) => {
    for (let at = client; !ends.signal.aborted; at = (at + 1) % TILES.length) {
      const tile = TILES[at]!;
      const reply = await edge.send('GET', pathOf(tile));
      if (reply.status === 503) counts.refused += 1;
      else {
        assert.equal(reply.status, 200);
        assert.ok(reply.body.equals(tile.bytes), `${pathOf(tile)} is right`);
        counts.good += 1;
      }
    }
  });
  await eventually('the clients read tiles', () => counts.good > 20);
  const position = FILE.length - 1000;
  await using file = await open(join(packsDir(edge), 'a.pmtiles'), 'r+');
  await file.write(Uint8Array.of(FILE[position]! ^ 1), 0, 1, position);
  // The clients have the tiles in memory, which stays right. A read of the file finds the damage.
  // It is behind the first batch: the answer has begun, and is cut before the damaged group.
  await assert.rejects(edge.send('GET', '/edge/assets/pack/a.pmtiles'));
  assertRefusal(await edge.send('GET', '/edge/assets/pack/a.pmtiles'), 503, 'not_ready');
  await eventually('the clients are refused', () => counts.refused > 20);
  ends.abort();
  await Promise.all(clients);
  assert.equal(await edge.metric('integrity_fail_total{reason="pack"}'), 1);
  assert.match((await gateReason(edge, 'packs'))!, /do not match the address/);
  for (const tile of TILES) assertRefusal(await edge.send('GET', pathOf(tile)), 503, 'not_ready');
  assertRefusal(
    await edge.send('GET', '/edge/assets/pack/a.pmtiles', { headers: { range: 'bytes=0-9' } }),
    503,
    'not_ready',
  );
  // The directory is watched: the changed file is noticed, and not accepted.
  await eventually('the change is reported', async () => /changed in place/.test(await badReason(edge)));
  for (const tile of TILES) assertRefusal(await edge.send('GET', pathOf(tile)), 503, 'not_ready');
  await mountPack(edge, 'a', FILE);
  for (const tile of TILES) assert.ok((await edge.send('GET', pathOf(tile))).body.equals(tile.bytes));
  await eventually('edge is ready', () => isReady(edge));
});

test('a file that was changed in place is accepted by a reload, and restored content at once', async () => {
  await using edge = await startService();
  await untilReady(edge);
  await mountPack(edge, 'a', FILE);
  const path = join(packsDir(edge), 'a.pmtiles');
  await utimes(path, 1e9, 1e9);
  const other = makePmtiles({ tiles: someTiles(3, 9000, 7), leaf_entries: 16 });
  await writeFile(path, other);
  await eventually('the change is reported', async () => /changed in place/.test(await badReason(edge)));
  await writeFile(path, FILE);
  await eventually('the restored file is accepted', async () => (await badReason(edge)) === '');
  await writeFile(path, other);
  await eventually('the change is reported', async () => /changed in place/.test(await badReason(edge)));
  await edge.edge.reload?.();
  assert.equal(await badReason(edge), '');
  const { packs } = (await edge.call('GET', '/edge/packs')).json;
  assert.equal(packs[0].address, addressOf(other));
});

/** Writes to the file, and restores its mtime as `cp -p` does. */
async function overwrite(path: string, bytes: Uint8Array, position: number): Promise<void> {
  const { mtime } = await stat(path);
  await using file = await open(path, 'r+');
  await file.write(bytes, 0, bytes.length, position);
  await file.utimes(mtime, mtime);
}

test('a damaged file that seems unchanged is served again once it is restored, and not before', async () => {
  await using edge = await startService();
  await untilReady(edge);
  const path = join(packsDir(edge), 'a.pmtiles');
  await mountPack(edge, 'a', FILE);
  // A time in whole milliseconds, which can be restored.
  await utimes(path, 1e9, 1e9);
  await edge.edge.reload?.();
  const position = FILE.length - 1000;
  const readEnd = (): Promise<Reply> =>
    edge.send('GET', '/edge/assets/pack/a.pmtiles', { headers: { range: 'bytes=-2000' } });
  await overwrite(path, Uint8Array.of(FILE[position]! ^ 1), position);
  assertRefusal(await readEnd(), 503, 'not_ready');
  await edge.edge.reload?.();
  assertRefusal(await readEnd(), 503, 'not_ready');
  assert.match(await badReason(edge), /does not match its address/);
  await overwrite(path, FILE.subarray(position, position + 1), position);
  await eventually('the restored file is served', async () => {
    return (await readEnd()).body.equals(FILE.subarray(-2000));
  });
  await eventually('edge is ready', () => isReady(edge));
});
