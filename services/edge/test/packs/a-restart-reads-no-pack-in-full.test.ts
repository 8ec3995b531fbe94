import assert from 'node:assert/strict';
import { open, readdir, readFile, rename, truncate, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { isRonError } from '@ron/kernel';
import { assertSameBytes, MIB } from '@ron/testkit';
import { CHECKED, encodeSidecar } from '../../src/packs/hashes/sidecar.ts';
import { hashFile, openInThread, requireUnchanged } from '../../src/packs/hashes/thread/hash-file.ts';
import { PmtilesOpener } from '../../src/packs/pmtiles/pmtiles-opener.ts';
import { encodeDirectory, makePmtiles } from './make-pmtiles.ts';
import { someTiles, testPacks, type TestPacks } from './pack-fixtures.ts';

const FILE = makePmtiles({ tiles: someTiles(2, 12_000), leaf_entries: 8 });
/** A time that can be restored exactly. */
const MTIME = new Date('2026-01-01T00:00:00Z');

/** Writes a pack whose time is known, and mounts it once. */
async function mounted(packs: TestPacks): Promise<string> {
  const path = join(packs.dir, 'pack.pmtiles');
  await writeFile(path, FILE);
  await utimes(path, MTIME, MTIME);
  await packs.openFile(path);
  return path;
}

async function flip(path: string, position: number): Promise<void> {
  await using file = await open(path, 'r+');
  await file.write(Uint8Array.of(FILE[position]! ^ 1), 0, 1, position);
}

test('a restart trusts the sidecar, and the reads still find every damage', async (t) => {
  const packs = testPacks(t);
  const path = await mounted(packs);
  const { address } = (await packs.openFile(path)).info;
  // The last byte belongs to a tile. The time of the file does not show the change.
  await flip(path, FILE.length - 1);
  await utimes(path, MTIME, MTIME);
  const pack = await packs.openFile(path);
  assert.equal(pack.info.address, address, 'the pack was not read in full');
  assert.equal(pack.info.tiles, 21);
  await assert.rejects(async () => {
    for await (const _ of pack.read!(FILE.length - 1, FILE.length, packs.signal));
  }, /damaged/);
});

test('damage of the header is found when the pack is mounted again', async (t) => {
  const packs = testPacks(t);
  const path = await mounted(packs);
  await flip(path, 102);
  await utimes(path, MTIME, MTIME);
  await assert.rejects(
    packs.openFile(path),
    (error) => isRonError(error, 'validation') && /sidecar/.test(error.message),
  );
});

test('a changed file with an old sidecar is verified again', async (t) => {
  const packs = testPacks(t);
  const path = await mounted(packs);
  const before = await readFile(`${path}.b3`);
  const other = makePmtiles({ tiles: someTiles(2, 12_000, 50), leaf_entries: 8 });
  assert.equal(other.length, FILE.length);
  await writeFile(path, other);
  const changed = await packs.openFile(path);
  assertSameBytes(
    (await changed.tile(2, 1, 1, packs.signal))!.bytes,
    someTiles(2, 12_000, 50).find(({ z, x, y }) => z === 2 && x === 1 && y === 1)!.bytes,
  );
  assert.notDeepEqual(await readFile(`${path}.b3`), before);
  // Another inode with the same size and time.
  await utimes(path, MTIME, MTIME);
  await packs.openFile(path);
  await writeFile(`${path}.new`, FILE);
  await utimes(`${path}.new`, MTIME, MTIME);
  await rename(`${path}.new`, path);
  assert.notEqual((await packs.openFile(path)).info.address, changed.info.address);
});

test('a sidecar with any byte changed is not used, and is replaced', async (t) => {
  const packs = testPacks(t);
  const path = await mounted(packs);
  const sidecar = `${path}.b3`;
  const good = await readFile(sidecar);
  const { address } = (await packs.openFile(path)).info;
  for (let at = 0; at < good.length; at += 3) {
    const bad = Buffer.from(good);
    bad[at] = bad[at]! ^ 0x40;
    await writeFile(sidecar, bad);
    await using pack = await packs.openFile(path);
    assert.equal(pack.info.address, address);
    assertSameBytes(await readFile(sidecar), good, `sidecar after byte ${at}`);
  }
  for (const bytes of [Buffer.alloc(0), good.subarray(0, 100), Buffer.concat([good, Buffer.alloc(1)])]) {
    await writeFile(sidecar, bytes);
    await packs.openFile(path);
    assertSameBytes(await readFile(sidecar), good);
  }
});

test('a forged sidecar cannot give a file the address of another', async (t) => {
  const packs = testPacks(t);
  const path = await mounted(packs);
  const { address } = (await packs.openFile(path)).info;
  const other = makePmtiles({ tiles: someTiles(2, 12_000, 50), leaf_entries: 8 });
  const target = join(packs.dir, 'other.pmtiles');
  await writeFile(target, other);
  using file = openInThread(path);
  using forged = openInThread(target);
  const content = { checked: CHECKED.pmtiles, tiles: 21, tree: await hashFile(file) };
  await writeFile(`${target}.b3`, encodeSidecar(forged.stamp, content));
  // Its values combine to the address of the first pack, so the bytes of the second do not match them.
  await assert.rejects(packs.openFile(target), /do not match the sidecar/);
  const tree = { ...(await hashFile(forged)), address };
  const sidecar = encodeSidecar(forged.stamp, { ...content, tree });
  await writeFile(`${target}.b3`, sidecar);
  // Its values do not combine to the address that it states, so it is not used.
  assert.notEqual((await packs.openFile(target)).info.address, address);
  assert.notDeepEqual(await readFile(`${target}.b3`), sidecar);
});

test('a directory above 10 MiB is not read, even if a forged sidecar states that it was verified', async (t) => {
  const packs = testPacks(t);
  const leaves_bytes = 10 * MIB + 1;
  const root = encodeDirectory([{ id: 0, run: 0, length: leaves_bytes, offset: 0 }]);
  const start = makePmtiles({
    tiles: [{ z: 0, x: 0, y: 0, bytes: Buffer.alloc(8, 1) }],
    zooms: [0, 0],
    directories: { root },
    header: { leaves_at: 1024, leaves_bytes, tiles_at: 1024 + leaves_bytes, tiles_bytes: 8 },
  });
  const path = join(packs.dir, 'forged.pmtiles');
  await writeFile(path, start);
  await truncate(path, 1024 + leaves_bytes + 8);
  using file = openInThread(path);
  const content = { checked: CHECKED.pmtiles, tiles: 1, tree: await hashFile(file) };
  await writeFile(`${path}.b3`, encodeSidecar(file.stamp, content));
  const pack = await packs.openFile(path);
  await assert.rejects(pack.tile(0, 0, 0, packs.signal), (error) => {
    return isRonError(error, 'not_ready') && error.message.includes(`${leaves_bytes} bytes`);
  });
});

test('a pack is used although its sidecar cannot be written, which is reported; without one nothing is written', async (t) => {
  const packs = testPacks(t);
  const path = join(packs.dir, 'pack.pmtiles');
  await writeFile(path, FILE);
  const failures: string[] = [];
  await using opener = new PmtilesOpener({ onSidecarFailed: (...failure) => failures.push(failure.join(': ')) });
  const init = { path, expect: undefined, onDamage: assert.fail, signal: packs.signal };
  await using pack = await opener.open({ ...init, sidecar: join(packs.dir, 'missing', 'pack.b3') });
  assert.equal(pack.info.tiles, 21);
  assert.match(failures.join(), /pack.pmtiles: ENOENT/);
  await using memory = await opener.open({ ...init, sidecar: undefined });
  assert.equal(memory.info.address, pack.info.address);
  assert.equal(failures.length, 1);
  assert.deepEqual(await readdir(packs.dir), ['pack.pmtiles']);
});

test('a file that is written to while it is hashed is refused', async (t) => {
  const packs = testPacks(t);
  const path = join(packs.dir, 'pack.pmtiles');
  await writeFile(path, FILE);
  using file = openInThread(path);
  await hashFile(file);
  requireUnchanged(file);
  await utimes(path, MTIME, MTIME);
  assert.throws(() => requireUnchanged(file), /changed while it was verified/);
});
