/** The reads of MBTiles are not checked by hashes, so nothing but the bytes of the file may give a pack its address. */
import assert from 'node:assert/strict';
import { mkdir, readdir, stat, utimes, writeFile } from 'node:fs/promises';
import fs, { readdirSync, readlinkSync, renameSync, utimesSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import { test } from 'node:test';
import { Cell, Deadline, Mpsc, NEVER } from '@ron/kernel';
import { DiskGate, realFileSystem } from '@ron/log';
import { tempDir } from '@ron/testkit';
import { addressOf } from '@ron/testkit/service';
import { encodeSidecar, type SidecarContent } from '../../src/packs/hashes/sidecar.ts';
import { hashFile, openInThread } from '../../src/packs/hashes/thread/hash-file.ts';
import { MbtilesOpener } from '../../src/packs/mbtiles/mbtiles-opener.ts';
import type { FileIdentity } from '../../src/packs/mbtiles/thread/calls.ts';
import { close, open, verify } from '../../src/packs/mbtiles/thread/mbtiles-thread.ts';
import { openDatabase } from '../../src/packs/mbtiles/thread/open-database.ts';
import { MountTable, newMountTable } from '../../src/packs/mount-table.ts';
import { PackDirectory } from '../../src/packs/pack-directory.ts';
import type { PackJob } from '../../src/packs/pack-jobs.ts';
import { PackRegistry } from '../../src/packs/pack-registry.ts';
import { PackVerifier } from '../../src/packs/pack-verifier.ts';
import { PmtilesOpener } from '../../src/packs/pmtiles/pmtiles-opener.ts';
import { startService } from '../support.ts';
import { makeMbtiles, pngTiles } from './make-mbtiles.ts';
import { openTestPacks } from './mbtiles-support.ts';
import { packsDir, someMbtiles, tileOf } from './registry-support.ts';

async function identityOf(path: string): Promise<FileIdentity> {
  const { dev, ino, size, mtimeNs } = await stat(path, { bigint: true });
  return { device: dev, inode: ino, size, mtime_ns: mtimeNs };
}

test('a forged sidecar beside an MBTiles file is ignored, and removed at the next start', async () => {
  await using temp = await tempDir();
  const packs = join(temp.path, 'packs');
  await mkdir(packs);
  const file = join(packs, 'a.mbtiles');
  const bytes = await someMbtiles(1);
  await writeFile(file, bytes);
  await writeFile(join(temp.path, 'other'), await someMbtiles(2));
  using forged = openInThread(file);
  using other = openInThread(join(temp.path, 'other'));
  assert.equal(forged.stamp.size, other.stamp.size);
  const tree = await hashFile(other);
  for (const checked of [0, 1]) {
    await writeFile(`${file}.b3`, encodeSidecar(forged.stamp, { checked, tiles: 21, tree } as SidecarContent));
    await using edge = await startService({ dir: temp.path });
    await edge.edge.reload?.();
    assert.equal((await edge.call('GET', '/edge/packs')).json.packs[0].address, addressOf(bytes));
    assert.deepEqual(await readdir(packsDir(edge)), ['a.mbtiles']);
  }
});

test('a file that was changed with its time restored has its new address after a mount', async () => {
  await using packs = await openTestPacks();
  const path = packs.path('a.mbtiles');
  for (const seed of [1, 2]) {
    await writeFile(path, await someMbtiles(seed));
    await utimes(path, 1e9, 1e9);
    await using pack = await packs.open('a.mbtiles');
    assert.equal(pack.info.address, addressOf(await someMbtiles(seed)));
    assert.deepEqual(await readdir(packs.path('.')), ['a.mbtiles']);
  }
});

test('a file that is written to while it is hashed is refused', async () => {
  await using temp = await tempDir();
  const path = join(temp.path, 'a.mbtiles');
  makeMbtiles({ path, tiles: pngTiles(1) });
  const verifying = verify({ path, identity: await identityOf(path) });
  utimesSync(path, 1e9, 1e9);
  await assert.rejects(verifying, /changed while it was verified/);
});

test('a file that is replaced between the two times that it is opened is refused', async (t) => {
  await using temp = await tempDir();
  const [path, next] = [join(temp.path, 'a.mbtiles'), join(temp.path, 'next')];
  makeMbtiles({ path, tiles: pngTiles(1) });
  makeMbtiles({ path: next, tiles: pngTiles(2) });
  const identity = await identityOf(path);
  const { openSync } = fs;
  t.mock.method(fs, 'openSync', (...args: Parameters<typeof openSync>) => {
    const fd = openSync(...args);
    if (args[0] === path) renameSync(next, path);
    return fd;
  });
  syncBuiltinESMExports();
  try {
    assert.throws(() => openDatabase({ path, identity }), /replaced while it was opened/);
  } finally {
    t.mock.restoreAll();
    syncBuiltinESMExports();
  }
  assert.deepEqual(openFiles(temp.path), []);
});

/** The files below a directory that this process has open. */
function openFiles(dir: string): string[] {
  const links = readdirSync('/proc/self/fd').map((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`);
    } catch {
      return '';
    }
  });
  return links.filter((path) => path.startsWith(dir));
}

test('a thread has at most 512 open databases', async () => {
  await using temp = await tempDir();
  const path = join(temp.path, 'a.mbtiles');
  makeMbtiles({ path, tiles: pngTiles(0) });
  const identity = await identityOf(path);
  const count = 515;
  for (let id = 0; id < count; id += 1) open({ id, path, identity });
  // One descriptor of SQLite and one of edge for each.
  assert.equal(openFiles(temp.path).length, 2 * 512);
  for (let id = 0; id < count; id += 1) close(id);
  assert.deepEqual(openFiles(temp.path), []);
});

test('an uploaded pack is found under its new name by a thread that replaced another', async () => {
  await using temp = await tempDir();
  const module = new URL('./faulty-mbtiles-thread.ts', import.meta.url);
  const mbtiles = new MbtilesOpener({ module, readDeadline: () => Deadline.after('pack_read', 5000) });
  const directory = new PackDirectory(temp.path, realFileSystem, new DiskGate({ calls_max: 2, late_ms: 5000 }), 1000);
  const ignored = (): void => undefined;
  const verifier = new PackVerifier({
    directory,
    isReadOnly: false,
    table: new MountTable(new Cell('routing_table', 2, newMountTable()), 10),
    openers: { pmtiles: new PmtilesOpener(), mbtiles },
    jobs: new Mpsc<PackJob>('verify', 2),
    budget_ms: 5000,
    onMounted: ignored,
    onRemoved: ignored,
    onRefused: ignored,
    onDamaged: ignored,
  });
  const deadline = (): Deadline => Deadline.after('pack', 5000);
  await using registry = new PackRegistry({ directory, verifier, bytes_max: 1e6, deadline, fetch: undefined });
  const stopping = new AbortController();
  const task = registry.run(stopping.signal);
  const body = await someMbtiles(1);
  const from = (async function* () {
    yield body;
  })();
  await registry.put({ name: 'a', from, expect: undefined, signal: NEVER });
  const { pack } = registry.get('a')!;
  // The first read of this tile ends its thread.
  assert.deepEqual((await pack.tile(1, 1, 0, NEVER))?.bytes, new Uint8Array(tileOf(1, 1, 1, 0)));
  stopping.abort(new Error('stopping'));
  await task;
});
