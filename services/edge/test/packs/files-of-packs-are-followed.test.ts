/** Files that an operator adds, replaces, damages or deletes: noticed at the start, by a reload, and while edge runs. */
import assert from 'node:assert/strict';
import { appendFile, copyFile, mkdir, readdir, rename, rm, truncate, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { eventually, tempDir } from '@ron/testkit';
import { addressOf, assertRefusal } from '@ron/testkit/service';
import { startService, type TestEdge } from '../support.ts';
import { fixture } from './pack-fixtures.ts';
import {
  gateReason,
  isReady,
  mountPack,
  packsDir,
  readTile,
  someMbtiles,
  somePmtiles,
  tileOf,
  untilReady,
} from './registry-support.ts';

const statusOf = async (edge: TestEdge, name: string): Promise<number> =>
  (await edge.send('GET', `/edge/assets/pack/${name}/2/3/1.png`)).status;
const isServed = async (edge: TestEdge, name: string, seed: number): Promise<boolean> => {
  const reply = await edge.send('GET', `/edge/assets/pack/${name}/2/3/1.png`);
  return reply.status === 200 && reply.body.equals(tileOf(seed, 2, 3, 1));
};

/** A file that was complete long ago. */
async function writeOld(path: string, bytes: Buffer): Promise<void> {
  await writeFile(path, bytes);
  await utimes(path, 1e9, 1e9);
}

test('bad files at the start keep /readyz at 503 with file and reason; other packs answer, and a removal opens it', async (t) => {
  await using temp = await tempDir();
  const packs = join(temp.path, 'packs');
  await mkdir(packs);
  await writeFile(join(packs, 'good.pmtiles'), somePmtiles(1));
  const bad: Record<string, string> = {
    'text.pmtiles': 'text',
    'not a name.mbtiles': 'x',
    'two.pmtiles': 'x',
    'two.mbtiles': 'x',
  };
  for (const [file, text] of Object.entries(bad)) await writeFile(join(packs, file), text);
  for (const file of ['pm-invalid.pmtiles', 'pm-future-version.pmtiles', 'mb-corrupt.mbtiles']) {
    const path = fixture(file);
    if (path === undefined) t.diagnostic(`${file} is not in ../shared/fixtures`);
    else await copyFile(path, join(packs, (bad[file] = file)));
  }
  await using edge = await startService({ dir: temp.path });
  // Resolves once all files are verified.
  await edge.edge.reload?.();
  assert.equal(await isReady(edge), false);
  const listed = (await edge.call('GET', '/edge/packs')).json.bad as { name: string; file: string; reason: string }[];
  const names = new Set(Object.keys(bad).map((file) => file.slice(0, file.lastIndexOf('.'))));
  assert.deepEqual(new Set(listed.map(({ name }) => name)), names);
  for (const { reason } of listed) assert.ok(reason.length > 10, reason);
  assert.match((await gateReason(edge, 'packs'))!, new RegExp(`^${listed[0]!.file}: .*and ${names.size - 1} more$`));
  assert.ok(await isServed(edge, 'good', 1));
  assertRefusal(await edge.send('GET', '/edge/assets/pack/two/2/3/1.png'), 503, 'not_ready');
  for (const file of ['not a name.mbtiles', 'two.mbtiles']) await rm(join(packs, file));
  for (const name of names) {
    if (name !== 'not a name') assert.equal((await edge.call('DELETE', `/edge/packs/${name}`)).status, 204);
  }
  await edge.edge.reload?.();
  assert.ok(await isReady(edge));
  assert.deepEqual((await readdir(packs)).toSorted(), ['good.pmtiles', 'good.pmtiles.b3']);
});

test('a removal of a name with two files deletes neither', async () => {
  await using temp = await tempDir();
  const packs = join(temp.path, 'packs');
  await mkdir(packs);
  await writeFile(join(packs, 'two.pmtiles'), somePmtiles(1));
  await using edge = await startService({ dir: temp.path });
  await untilReady(edge);
  await writeFile(join(packs, 'two.mbtiles'), 'x');
  assertRefusal(await edge.call('DELETE', '/edge/packs/two'), 409, 'conflict');
  assert.equal(await statusOf(edge, 'two'), 200);
  assert.deepEqual((await readdir(packs)).filter((file) => !file.endsWith('.b3')).toSorted(), [
    'two.mbtiles',
    'two.pmtiles',
  ]);
});

test('a reload mounts added files, remounts replaced ones and retires deleted ones', async () => {
  await using edge = await startService();
  await untilReady(edge);
  await mountPack(edge, 'gone', somePmtiles(1));
  await mountPack(edge, 'replaced', somePmtiles(2));
  const path = (file: string): string => join(packsDir(edge), file);
  await writeFile(path('added.mbtiles'), await someMbtiles(3));
  await writeFile(path('next'), somePmtiles(4));
  await rename(path('next'), path('replaced.pmtiles'));
  await rm(path('gone.pmtiles'));
  await edge.edge.reload?.();
  assert.deepEqual(await readTile(edge, 'added'), Buffer.from(tileOf(3, 2, 3, 1)));
  assert.deepEqual(await readTile(edge, 'replaced'), Buffer.from(tileOf(4, 2, 3, 1)));
  assert.equal(await statusOf(edge, 'gone'), 404);
});

test('changed files are noticed without a reload', async () => {
  await using edge = await startService();
  await untilReady(edge);
  const path = (file: string): string => join(packsDir(edge), file);
  await writeOld(path('a.part'), somePmtiles(1));
  await rename(path('a.part'), path('a.pmtiles'));
  await eventually('an added file is served', () => isServed(edge, 'a', 1));
  await writeOld(path('a.part'), somePmtiles(2));
  await rename(path('a.part'), path('a.pmtiles'));
  await eventually('a replaced file is served', () => isServed(edge, 'a', 2));
  await rm(path('a.pmtiles'));
  await eventually('a deleted file is not', async () => (await statusOf(edge, 'a')) === 404);
});

test('a file whose mtime is in the future is mounted without a reload', async () => {
  await using edge = await startService();
  await untilReady(edge);
  const path = join(packsDir(edge), 'a.pmtiles');
  await writeFile(`${path}.part`, somePmtiles(1));
  await utimes(`${path}.part`, 4e9, 4e9);
  await rename(`${path}.part`, path);
  await eventually('the file is served', () => isServed(edge, 'a', 1));
});

test('a bad replacement is refused: the mounted version stays, and only a soft gate closes', async () => {
  await using edge = await startService();
  await untilReady(edge);
  await mountPack(edge, 'pm', somePmtiles(1));
  await mountPack(edge, 'mb', await someMbtiles(1));
  for (const file of ['pm.pmtiles', 'mb.mbtiles']) {
    const path = join(packsDir(edge), file);
    await writeFile(`${path}.part`, 'a bad replacement');
    await rename(`${path}.part`, path);
  }
  await edge.edge.reload?.();
  assert.ok(await isReady(edge));
  assert.match((await gateReason(edge, 'packs_replaced'))!, /^mb.mbtiles: .*1 more/);
  for (const name of ['pm', 'mb']) assert.ok(await isServed(edge, name, 1), name);
  const { bad } = (await edge.call('GET', '/edge/packs')).json;
  assert.deepEqual(
    bad.map((each: { name: string; is_served: boolean }) => [each.name, each.is_served]),
    [
      ['mb', true],
      ['pm', true],
    ],
  );
});

const DAMAGE: Readonly<Record<string, (path: string) => Promise<void>>> = {
  truncated: (path) => truncate(path, 1000),
  appended: (path) => appendFile(path, 'more'),
  overwritten: async (path) => writeFile(path, await someMbtiles(9)),
};

for (const [how, damage] of Object.entries(DAMAGE)) {
  test(`a mounted MBTiles file that is ${how} is not served until it is mounted again`, async () => {
    await using edge = await startService();
    await untilReady(edge);
    await mountPack(edge, 'a', await someMbtiles(1));
    const path = join(packsDir(edge), 'a.mbtiles');
    await damage(path);
    assertRefusal(await edge.send('GET', '/edge/assets/pack/a/2/3/1.png'), 503, 'not_ready');
    assert.equal(await edge.metric('integrity_fail_total{reason="pack"}'), 1);
    assert.match((await gateReason(edge, 'packs'))!, /a/);
    await mountPack(edge, 'a', await someMbtiles(2));
    assert.ok(await isServed(edge, 'a', 2));
    await eventually('edge is ready', () => isReady(edge));
    assert.ok(edge.lines.some((line) => line.includes('pack damaged')));
  });
}

test('a directory that cannot be read keeps its packs mounted and closes the gate', async () => {
  await using edge = await startService();
  await untilReady(edge);
  await mountPack(edge, 'a', somePmtiles(1));
  await rename(packsDir(edge), `${packsDir(edge)}.away`);
  await edge.edge.reload?.();
  assert.match((await gateReason(edge, 'packs'))!, /packs: the file or directory is gone/);
  assert.ok(await isServed(edge, 'a', 1));
  await rename(`${packsDir(edge)}.away`, packsDir(edge));
  await edge.edge.reload?.();
  assert.ok(await isReady(edge));
});

test('a directory with too many entries keeps its packs and closes the gate until files are moved away', async () => {
  await using edge = await startService({ flags: ['--packs.open_max=1'] });
  await untilReady(edge);
  await mountPack(edge, 'a', somePmtiles(1));
  for (const file of ['b', 'c', 'd']) await writeFile(join(packsDir(edge), file), '');
  await edge.edge.reload?.();
  assert.match((await gateReason(edge, 'packs'))!, /more than 4 entries: move other files away/);
  assert.ok(await isServed(edge, 'a', 1));
  await rm(join(packsDir(edge), 'd'));
  await edge.edge.reload?.();
  assert.ok(await isReady(edge));
});

test('packs.open_max bounds the open packs', async () => {
  await using edge = await startService({ flags: ['--packs.open_max=2'] });
  await untilReady(edge);
  await mountPack(edge, 'a', somePmtiles(1));
  await mountPack(edge, 'b', somePmtiles(2));
  const body = somePmtiles(3);
  const headers = { ...(await edge.allow()) };
  assertRefusal(await edge.send('PUT', '/edge/packs/c', { headers, body }), 409, 'conflict');
  await edge.call('DELETE', '/edge/packs/a');
  // A retired pack counts until its last reader has left.
  const held = edge.edge.packs.get('b')!.hold();
  await edge.call('DELETE', '/edge/packs/b');
  await mountPack(edge, 'c', body);
  assertRefusal(await edge.send('PUT', '/edge/packs/d', { headers, body }), 429, 'busy');
  held[Symbol.dispose]();
  await eventually('the retired pack is closed', async () => {
    return (await edge.send('PUT', '/edge/packs/d', { headers, body })).status === 201;
  });
  assert.equal(addressOf(body), (await edge.call('GET', '/edge/packs')).json.packs[0].address);
});

test('files that were refused because of a limit are mounted by a reload once there is room', async () => {
  await using temp = await tempDir();
  const packs = join(temp.path, 'packs');
  await mkdir(packs);
  for (const name of ['a', 'b']) await writeFile(join(packs, `${name}.pmtiles`), somePmtiles(1));
  await using edge = await startService({ dir: temp.path, flags: ['--packs.open_max=1'] });
  await edge.edge.reload?.();
  const { packs: mounted, bad } = (await edge.call('GET', '/edge/packs')).json;
  assert.deepEqual([mounted.length, bad.length], [1, 1]);
  assert.match(bad[0].reason, /open_max/);
  assert.equal(await isReady(edge), false);
  assert.equal((await edge.call('DELETE', `/edge/packs/${mounted[0].name}`)).status, 204);
  await edge.edge.reload?.();
  assert.ok(await isServed(edge, bad[0].name, 1));
  assert.ok(await isReady(edge));
});

test('an MBTiles file that is overwritten in place is served only after a reload', async () => {
  await using edge = await startService();
  await untilReady(edge);
  await mountPack(edge, 'a', await someMbtiles(1));
  const path = join(packsDir(edge), 'a.mbtiles');
  await writeOld(path, await someMbtiles(2));
  await eventually('the change is noticed', async () => (await edge.call('GET', '/edge/packs')).json.bad.length === 1);
  assert.notEqual(await statusOf(edge, 'a'), 200);
  await edge.edge.reload?.();
  assert.ok(await isServed(edge, 'a', 2));
});
