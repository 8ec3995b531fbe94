/** `ron pack`, `ron edge` and the checks of `ron doctor`, against a real node. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { copyFile, open, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, before, suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { EdgeWhyDto, PackDto, PackListDto } from '@ron/proto';
import { eventually } from '@ron/testkit';
import { send } from '@ron/testkit/service';
import { CleanUps, command, temporaryDir, up, type Ended, type Up } from './support.ts';

const MAKE_PACK = fileURLToPath(new URL('../../../docs/make-pack.js', import.meta.url));

/** A pack with one tile, gzipped as its content is of no interest. */
function makeMbtiles(path: string): void {
  const db = new DatabaseSync(path);
  db.exec(`CREATE TABLE metadata (name TEXT, value TEXT);
    CREATE TABLE tiles (zoom_level INTEGER, tile_column INTEGER, tile_row INTEGER, tile_data BLOB);
    CREATE UNIQUE INDEX tile_index ON tiles (zoom_level, tile_column, tile_row);
    INSERT INTO metadata VALUES ('name', 'one'), ('format', 'png'), ('minzoom', '0'), ('maxzoom', '0');
    INSERT INTO tiles VALUES (0, 0, 0, x'89504e470d0a1a0a');`);
  db.close();
}

suite('packs and edge', () => {
  const cleanUps = new CleanUps();
  let node: Up;
  let work: string;
  let demo: string;
  let mbtiles: string;

  const ron = (...args: string[]): Promise<Ended> => command([...args, '--dir', node.dir]);
  const at = (...names: string[]): string => join(work, ...names);
  const packFile = (name: string): string => join(node.dir, 'edge/data/packs', name);
  const get = async (path: string): Promise<number> => (await send(node.services['edge']!, 'GET', path)).status;

  async function json<T>(...args: string[]): Promise<T> {
    const { code, text, stderr } = await ron(...args, '--json');
    assert.equal(code, 0, stderr);
    return JSON.parse(text) as T;
  }

  before(async () => {
    const dir = await temporaryDir(cleanUps);
    work = dir;
    demo = at('demo.pmtiles');
    mbtiles = at('one.mbtiles');
    assert.equal(spawnSync(process.execPath, [MAKE_PACK, demo]).status, 0);
    makeMbtiles(mbtiles);
    node = await up(cleanUps, join(dir, 'node'), ['--only', 'storage,edge']);
  });
  after(() => cleanUps.run());

  test('a file is added under its name, listed, served and verified', async () => {
    const added = await ron('pack', 'add', demo);
    assert.equal(added.code, 0, added.stderr);
    assert.match(added.text, /^demo {2}b3:[0-9a-f]{64} {2}pmtiles, 85 tiles of png, zoom 0-3, 1\.4 MiB\n$/);
    assert.match(added.stderr, new RegExp(`^map: ${node.services['edge']}/edge/map/demo#b3:[0-9a-f]{64}\n$`));
    assert.equal(await get('/edge/assets/pack/demo/3/7/7.png'), 200);
    assert.equal(await get('/edge/map/demo'), 200);
    const { packs, bad } = await json<PackListDto>('pack', 'ls');
    assert.deepEqual([packs.map(({ name }) => name), bad], [['demo'], []]);
    const verified = await json<{ address: string; size: number }>('pack', 'verify', 'demo');
    assert.deepEqual([verified.address, verified.size], [packs[0]!.address, (await stat(demo)).size]);
    const file = await ron('pack', 'verify', demo);
    assert.equal(file.text, `valid: ${demo} is ${packs[0]!.address}, 1.4 MiB verified\n`);
  });

  test('an object of storage is added by its address', async () => {
    const { address } = await json<{ address: string }>('put', demo);
    const pack = await json<PackDto>('pack', 'add', address, '--name', 'stored');
    assert.deepEqual([pack.name, pack.address], ['stored', address]);
    assert.equal(await get('/edge/assets/pack/stored/0/0/0.png'), 200);
    const absent = await ron('pack', 'add', `b3:${'0'.repeat(64)}`, '--name', 'absent');
    assert.equal(absent.code, 66, absent.stderr);
  });

  test('refused packs: the error names the file and the reason, and nothing is kept', async () => {
    const wrong = at('wrong.pmtiles');
    await writeFile(wrong, 'PMTiles\u0003 and nothing else');
    const refused = await ron('pack', 'add', wrong);
    assert.equal(refused.code, 65, refused.stderr);
    assert.match(refused.stderr, new RegExp(`^ron: ${wrong} was refused: `));
    const other = await ron('pack', 'add', demo, '--name', 'other', '--expect', `b3:${'0'.repeat(64)}`);
    assert.equal(other.code, 65, other.stderr);
    assert.match(other.stderr, /demo\.pmtiles was refused: .*b3:0000/);
    const missing = await ron('pack', 'add', at('missing.pmtiles'));
    assert.deepEqual([missing.code, missing.stderr], [66, `ron: ${at('missing.pmtiles')}: no such file\n`]);
    const { packs, bad } = await json<PackListDto>('pack', 'ls');
    assert.ok(!packs.some(({ name }) => name === 'wrong' || name === 'other'));
    assert.deepEqual(bad, []);
  });

  test('an MBTiles pack is verified in the directory of the node, and a changed byte is found', async () => {
    assert.equal((await json<PackDto>('pack', 'add', mbtiles)).format, 'mbtiles');
    assert.equal((await ron('pack', 'verify', 'one')).code, 0);
    const copy = at('copy.mbtiles');
    await copyFile(mbtiles, copy);
    await flip(copy, 100);
    const { address } = (await json<PackListDto>('pack', 'ls')).packs.find(({ name }) => name === 'one')!;
    const changed = await ron('pack', 'verify', copy, '--expect', address);
    assert.equal(changed.code, 65);
    assert.match(changed.stderr, new RegExp(`^ron: ${copy} is b3:[0-9a-f]+, not ${address}`));
  });

  test('status and why explain packs and missing assets; purge removes nothing from packs', async () => {
    const status = await ron('edge', 'status');
    assert.match(status.text, /^edge +unix:.*edge\.sock, ready$/m);
    assert.match(status.text, /^mode +offline: nothing is fetched from origins$/m);
    const tile = await json<EdgeWhyDto>('edge', 'why', `${node.services['edge']}/edge/assets/pack/demo/0/0/0.png`);
    assert.deepEqual([tile.key, tile.tier, tile.pack?.name], ['pack/demo/0/0/0.png', 'pack', 'demo']);
    const missing = await ron('edge', 'why', 'live/tiles.example.org/0.png');
    assert.match(missing.text, /^served from +nowhere: a request is refused: the mode is offline/m);
    for (const args of [['live/tiles.example.org/0.png'], ['--prefix', 'live/'], ['--host', 'tiles.example.org']])
      assert.equal((await ron('edge', 'purge', ...args)).text, 'removed 0 assets\n');
    assert.equal(await get('/edge/assets/pack/demo/0/0/0.png'), 200);
  });

  test('doctor finds bad and damaged packs, and names the command that resolves it', async () => {
    await flipAll(packFile('stored.pmtiles'));
    assert.equal(await get('/edge/assets/pack/stored/2/1/1.png'), 503);
    await writeFile(packFile('bad.pmtiles'), 'no pack');
    node.process.kill('SIGHUP');
    await eventually('the bad pack is found', async () => (await json<PackListDto>('pack', 'ls')).bad.length > 0);
    const doctor = await ron('doctor');
    assert.equal(doctor.code, 1);
    assert.match(doctor.text, /^fail {2}.*bad\.pmtiles is refused: .*: replace it with .* `ron pack rm bad`$/m);
    assert.match(doctor.text, /^fail {2}pack stored is not served: .*`ron pack add FILE --name stored`/m);
    assert.match((await ron('pack', 'ls')).text, /bad\.pmtiles: .* \(not served\)/);
    const verified = await ron('pack', 'verify', 'stored');
    assert.equal(verified.code, 65, verified.stderr);
    assert.match(verified.stderr, /^ron: pack stored is not served: the bytes from \d+ on do not match/);
    assert.equal((await ron('pack', 'rm', 'bad', '--yes')).code, 0);
    assert.equal((await ron('pack', 'add', demo, '--name', 'stored')).code, 0);
    const healthy = await ron('doctor');
    assert.equal(healthy.code, 0, healthy.text);
    assert.match(healthy.text, /^ok {4}3 packs served, edge is offline$/m);
  });

  test('a pack is removed after confirmation', async () => {
    const unconfirmed = await ron('pack', 'rm', 'demo');
    assert.deepEqual([unconfirmed.code, await get('/edge/assets/pack/demo/0/0/0.png')], [64, 200]);
    assert.deepEqual(await json('pack', 'rm', 'demo', '--yes'), { name: 'demo', removed: true });
    assert.equal(await get('/edge/assets/pack/demo/0/0/0.png'), 404);
    await assert.rejects(stat(packFile('demo.pmtiles')), { code: 'ENOENT' });
    assert.equal((await ron('pack', 'rm', 'demo', '--yes')).code, 66);
  });

  test('without a capability the commands are refused with 77', async () => {
    const kept = await readFile(join(node.dir, 'root.cap'));
    await rm(join(node.dir, 'root.cap'));
    for (const args of [
      ['pack', 'ls'],
      ['pack', 'add', demo],
      ['edge', 'status'],
      ['edge', 'purge', '--prefix', 'o/'],
    ])
      assert.equal((await ron(...args)).code, 77, args.join(' '));
    await writeFile(join(node.dir, 'root.cap'), kept, { mode: 0o600 });
  });
});

async function flip(path: string, offset: number): Promise<void> {
  await using file = await open(path, 'r+');
  const byte = Buffer.alloc(1);
  await file.read(byte, 0, 1, offset);
  byte[0]! ^= 1;
  await file.write(byte, 0, 1, offset);
}

/** Flips one byte in each group of the tile data, as a failing disk does: the file has the same times as before. */
async function flipAll(path: string): Promise<void> {
  const reference = `${path}.times`;
  const touch = (...args: string[]): void => assert.equal(spawnSync('touch', args).status, 0);
  touch('-r', path, reference);
  const { size } = await stat(path);
  for (let offset = 10_000; offset < size; offset += 65_536) await flip(path, offset);
  touch('-r', reference, path);
  await rm(reference);
}
