/** The findings about edge. */
import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import type { PackDto } from '@ron/proto';
import { tempDirFor } from '@ron/testkit';
import { homeAt } from '../home.ts';
import { checkPackFiles, packFindings } from './edge-service.ts';

const pack = (name: string, problem?: string): PackDto => ({
  name,
  address: `b3:${'0'.repeat(64)}` as PackDto['address'],
  format: 'pmtiles',
  size: 1,
  tile_type: 'png',
  tiles: 1,
  zooms: [0, 0],
  bounds: [0, 0, 0, 0],
  ...(problem !== undefined && { problem }),
});

test('packs that are not served are failures with the command that resolves them', () => {
  assert.deepEqual(packFindings({ packs: [], bad: [] }, ''), [
    { level: 'ok', what: '0 packs served, edge is offline' },
  ]);
  const bad = [
    { name: 'b', file: 'b.pmtiles', reason: 'the root directory is\ntruncated', is_served: false },
    { name: 'c', file: 'c.mbtiles', reason: 'no tiles', is_served: true },
  ];
  const found = packFindings({ packs: [pack('a'), pack('d', 'its file changed')], bad }, 'edge_live 1\n');
  assert.deepEqual(
    found.map(({ level, what }) => `${level} ${what}`),
    [
      'ok 1 pack served, edge is live',
      'fail pack d is not served: its file changed',
      'fail b.pmtiles is refused: the root directory is\\u000atruncated',
      'warn c.mbtiles is refused, and the earlier version is served: no tiles',
    ],
  );
  assert.match(found[2]!.fix!, /`ron pack rm b`/);
});

test('the advice never deletes the pack that is served', () => {
  const same = 'a.pmtiles has the same name: remove one of the two';
  const bad = [
    { name: 'a', file: 'a.mbtiles', reason: same, is_served: true },
    { name: 'b', file: 'b.mbtiles', reason: same, is_served: false },
    { name: 'c', file: 'c.pmtiles', reason: 'truncated', is_served: true },
  ];
  const fixes = packFindings({ packs: [pack('a'), pack('c')], bad }, '').map(({ fix }) => fix);
  const both = 'rename or delete one of the two in the directory of the packs';
  assert.deepEqual(fixes, [undefined, both, both, 'replace it with `ron pack add FILE --name c`']);
});

test('a long list of packs that are not served is cut', () => {
  const bad = Array.from({ length: 25 }, (_, at) => ({
    name: `p${at}`,
    file: `p${at}`,
    reason: 'x',
    is_served: false,
  }));
  const found = packFindings({ packs: [], bad }, '');
  assert.equal(found.length, 22);
  assert.equal(found.at(-1)!.what, '5 more packs are not served');
});

test('a stopped node: files that are no packs are found by their first bytes', async (t) => {
  const home = homeAt(tempDirFor(t));
  assert.deepEqual(await checkPackFiles(home), []);
  const dir = join(home.of('edge').data, 'packs');
  await mkdir(dir, { recursive: true });
  await writeFile(join(dir, 'good.pmtiles'), 'PMTiles\u0003 and more');
  await writeFile(join(dir, 'good.pmtiles.b3'), 'a sidecar');
  await writeFile(join(dir, 'good.mbtiles'), 'SQLite format 3\u0000 and more');
  assert.deepEqual(await checkPackFiles(home), [{ level: 'ok', what: '2 packs' }]);
  await writeFile(join(dir, 'html.pmtiles'), '<!doctype html>');
  await writeFile(join(dir, 'empty.mbtiles'), '');
  const found = await checkPackFiles(home);
  assert.deepEqual(
    found.map(({ level, what }) => [level, what]),
    [
      ['fail', `${join(dir, 'empty.mbtiles')} is not a mbtiles file`],
      ['fail', `${join(dir, 'html.pmtiles')} is not a pmtiles file`],
    ],
  );
});
