import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { access, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { isRonError, type ErrorCode } from '@ron/kernel';
import type { Address } from '@ron/proto';
import { MIB } from '@ron/testkit';
import {
  compress,
  encodeDirectory,
  makePmtiles,
  varint,
  type HeaderNumbers,
  type MakeInit,
  type TestEntry,
} from './make-pmtiles.ts';
import { fixture, someTiles, testPacks, type TestPacks } from './pack-fixtures.ts';

const TILES = someTiles(2, 100);

/** Opens a file and returns the reason of its refusal. */
async function refusal(packs: TestPacks, path: string, code: ErrorCode = 'validation'): Promise<string> {
  try {
    await packs.openFile(path);
  } catch (error) {
    assert.ok(isRonError(error, code), String(error));
    await assert.rejects(access(`${path}.b3`), 'no sidecar is written for a bad pack');
    return error.message;
  }
  return assert.fail(`${path} was opened`);
}

const BAD_HEADERS: readonly (readonly [Partial<HeaderNumbers>, RegExp])[] = [
  [{ version: 2 }, /version is 2, expected 3/],
  [{ version: 4 }, /version is 4, expected 3/],
  [{ root_bytes: 0 }, /root directory is empty/],
  [{ root_at: 0 }, /section root overlaps the section header/],
  [{ root_at: 20_000 }, /within the first 16384 bytes/],
  [{ metadata_at: 130 }, /overlaps the section/],
  [{ metadata_bytes: 1e9 }, /section metadata ends at byte/],
  [{ metadata_bytes: 900 }, /section leaves overlaps the section metadata/],
  [{ tiles_bytes: 1e9 }, /section tiles ends at byte .* beyond the end of the file/],
  [{ tiles_at: 2 ** 53 }, /beyond the end of the file/],
  [{ leaves_bytes: 2 ** 60, leaves_at: 2 ** 60 }, /section leaves ends at byte/],
  [{ addressed: 22 }, /states 22 addressed tiles, the directories have 21/],
  [{ entries: 3 }, /states 3 tile entries, the directories have/],
  [{ contents: 99 }, /states 99 tile contents for/],
  [{ directory_codec: 0 }, /compression 0 of directories/],
  [{ directory_codec: 5 }, /compression 5 of directories/],
  [{ directory_codec: 3 }, /directory is not valid br/],
  [{ tile_codec: 9 }, /compression 9 of tiles/],
  [{ type: 7 }, /tile type 7/],
  [{ min_zoom: 3, max_zoom: 2 }, /zoom levels are 3 to 2/],
  [{ max_zoom: 27 }, /zoom levels are 0 to 27/],
  [{ max_zoom: 1 }, /tile id .* outside of its range 0 to 4/],
  [{ min_zoom: 1 }, /tile id 0, outside of its range 1 to 20/],
];

test('a header with a false number is refused with the reason', async (t) => {
  const packs = testPacks(t);
  for (const [index, [header, reason]] of BAD_HEADERS.entries()) {
    const path = join(packs.dir, `header-${index}.pmtiles`);
    await writeFile(path, makePmtiles({ tiles: TILES, directory_codec: 'gzip', leaf_entries: 6, header }));
    assert.match(await refusal(packs, path), reason, JSON.stringify(header));
  }
});

const entry = (id: number, run: number, length: number, offset: number): TestEntry => ({ id, run, length, offset });
const raw = (...numbers: number[]): Uint8Array => Uint8Array.from(numbers.flatMap(varint));
const directory = (...entries: TestEntry[]): Uint8Array => encodeDirectory(entries);

/** A leaf that has itself as its leaf. */
const LOOP = directory(entry(0, 0, 5, 0));
const LEAF = directory(entry(1, 1, 1, 0));

const BAD_DIRECTORIES: Readonly<Record<string, readonly [NonNullable<MakeInit['directories']>, RegExp]>> = {
  'a leaf that refers to itself': [{ root: LOOP, leaves: LOOP }, /leaf directories overlap/],
  'a leaf that refers to itself in a long section': [
    { root: LOOP, leaves: Buffer.concat([LOOP, Buffer.alloc(100)]) },
    /nested more than 4 deep/,
  ],
  'a leaf of two entries': [
    { root: directory(entry(1, 0, LEAF.length, 0), entry(5, 0, LEAF.length, 0)), leaves: Buffer.concat([LEAF, LEAF]) },
    /tile id 1, outside of its range 5 to 20/,
  ],
  'leaves that overlap': [
    {
      root: directory(entry(0, 0, 9, 0), entry(5, 0, 9, 1)),
      leaves: Buffer.concat([directory(entry(1, 1, 1, 0), entry(2, 1, 1, 0)), Buffer.alloc(1)]),
    },
    /overlap|range/,
  ],
  'a leaf outside of its section': [{ root: directory(entry(0, 0, 10, 5)), leaves: LEAF }, /beyond their end/],
  'a leaf without a section': [{ root: directory(entry(0, 0, 1, 0)) }, /beyond their end/],
  'no entries': [{ root: raw(0) }, /no entries/],
  'more entries than bytes': [{ root: raw(2 ** 40, 1, 1, 1) }, /states 1099511627776 entries/],
  'two entries for one id': [{ root: raw(2, 1, 0, 1, 1, 1, 1, 1, 1) }, /two entries for one tile id/],
  'runs that overlap': [{ root: directory(entry(1, 5, 1, 0), entry(3, 1, 1, 0)) }, /overlaps the next entry/],
  'a run beyond the zoom levels': [{ root: directory(entry(20, 2, 1, 0)) }, /leaves its directory/],
  'a run above 32 bits': [{ root: directory(entry(0, 2 ** 33, 1, 0)) }, /run of 8589934592 tiles/],
  'an empty tile': [{ root: directory(entry(0, 1, 0, 0)) }, /has 0 bytes/],
  'a tile above 32 bits': [{ root: directory(entry(0, 1, 2 ** 33, 0)) }, /has 8589934592 bytes/],
  'a tile beyond the tile data': [{ root: directory(entry(0, 1, 10, 1e6)) }, /of the tile data, beyond their end/],
  'a first entry without an offset': [{ root: raw(1, 0, 1, 1, 0) }, /first entry of a directory has no offset/],
  'bytes after the last entry': [{ root: raw(1, 0, 1, 1, 1, 7) }, /1 bytes after its last entry/],
  'a directory that ends early': [{ root: Uint8Array.of(1, 0, 1, 1, 0x80) }, /ends within an entry/],
  'a number above 2^53': [{ root: Uint8Array.of(1, ...Array<number>(8).fill(0xff), 1, 1, 1, 1) }, /number above 2\^53/],
  'a number of many bytes': [
    { root: Uint8Array.of(1, ...Array<number>(12).fill(0x80), 1, 1, 1, 1) },
    /more than 9 bytes/,
  ],
};

test('a directory with a false entry is refused with the reason', async (t) => {
  const packs = testPacks(t);
  for (const [name, [directories, reason]] of Object.entries(BAD_DIRECTORIES)) {
    const path = join(packs.dir, `${name}.pmtiles`);
    const header = { addressed: 0, entries: 0, contents: 0 };
    await writeFile(path, makePmtiles({ tiles: TILES, directories, header }));
    assert.match(await refusal(packs, path), reason, name);
  }
});

// [edge I-10]
test('directories that expand beyond 10 MiB, or are nested too deeply, are refused', async (t) => {
  const packs = testPacks(t);
  for (const codec of ['gzip', 'br', 'zstd'] as const) {
    const bomb = compress(Buffer.alloc(10 * MIB + 1), codec);
    assert.ok(bomb.length < 16_000);
    const path = join(packs.dir, `bomb-${codec}.pmtiles`);
    await writeFile(path, makePmtiles({ tiles: TILES, directory_codec: codec, directories: { root: bomb } }));
    assert.match(await refusal(packs, path), /directory decodes to more than 10485760 bytes/);
    const metadata = join(packs.dir, `metadata-${codec}.pmtiles`);
    await writeFile(metadata, makePmtiles({ tiles: TILES, directory_codec: codec, stored_metadata: bomb }));
    assert.match(await refusal(packs, metadata), /metadata decodes to more than 10485760 bytes/);
  }
  const deep = join(packs.dir, 'deep.pmtiles');
  await writeFile(deep, makePmtiles({ tiles: TILES, leaf_entries: 2, levels: 4 }));
  assert.match(await refusal(packs, deep), /nested more than 4 deep/);
});

test('metadata that is not a JSON object is refused', async (t) => {
  const packs = testPacks(t);
  for (const [index, text] of ['{', '[1]', 'null', '"a"', '\xff', '['.repeat(100_000)].entries()) {
    const path = join(packs.dir, `metadata-${index}.pmtiles`);
    await writeFile(path, makePmtiles({ tiles: TILES, stored_metadata: Buffer.from(text, 'latin1') }));
    assert.match(await refusal(packs, path), /metadata is not/);
  }
});

test('a file that is empty, cut, a directory or a pipe is refused', async (t) => {
  const packs = testPacks(t);
  const good = makePmtiles({ tiles: TILES, leaf_entries: 6 });
  for (const bytes of [0, 1, 126, 127, 200, good.length - 1]) {
    const path = join(packs.dir, `cut-${bytes}.pmtiles`);
    await writeFile(path, good.subarray(0, bytes));
    await refusal(packs, path);
  }
  await mkdir(join(packs.dir, 'dir.pmtiles'));
  assert.match(await refusal(packs, join(packs.dir, 'dir.pmtiles')), /not a regular file/);
  execFileSync('mkfifo', [join(packs.dir, 'pipe.pmtiles')]);
  assert.match(await refusal(packs, join(packs.dir, 'pipe.pmtiles')), /not a regular file/);
});

test('a pack with another address than the expected one is refused', async (t) => {
  const packs = testPacks(t);
  const { path, info } = await packs.open('good', makePmtiles({ tiles: TILES }));
  const open = (expect: Address): Promise<unknown> =>
    packs.opener.open({ path, sidecar: undefined, expect, onDamage: () => undefined, signal: packs.signal });
  const other = `b3:${'0'.repeat(64)}` as Address;
  await assert.rejects(open(other), (error) => isRonError(error, 'address_mismatch') && error.message.includes(other));
  await using _ = (await open(info.address)) as AsyncDisposable;
});

for (const name of ['pm-invalid.pmtiles', 'pm-future-version.pmtiles']) {
  const path = fixture(name);
  const skip = path === undefined ? 'the fixtures are not beside the project' : false;
  test(`${name} is refused`, { skip }, async (t) => {
    const packs = testPacks(t);
    const sidecar = join(packs.dir, 'x.b3');
    await assert.rejects(packs.openFile(path!, sidecar), (error) => isRonError(error, 'validation'));
  });
}
