/** Every crash point of small histories: acknowledged records survive, and no record exists that was never appended. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { FileSystem } from '../disk/file-system.ts';
import { SegmentLog } from './segment-log.ts';
import { CrashFileSystem } from '../testing/index.ts';

const signal = new AbortController().signal;
const DIR = '/log';
const SEGMENT_BYTES = 4096;
const IMAGES_MAX = 200;

const idOf = (key: number): Uint8Array => new Uint8Array(32).fill(key);
const payloadOf = (key: number, bytes: number): Uint8Array => new Uint8Array(bytes).fill(key);

interface Acknowledged {
  readonly key: number;
  /** Operations that had been done when the append was acknowledged. */
  readonly at: number;
}

/** Appends groups of payload lengths, each group at once, and notes when each append was acknowledged. */
async function write(
  disk: CrashFileSystem,
  fs: FileSystem,
  groups: readonly (readonly number[])[],
): Promise<Acknowledged[]> {
  const acknowledged: Acknowledged[] = [];
  const log = await SegmentLog.open({ dir: DIR, fs, segment_bytes: SEGMENT_BYTES, signal });
  let key = 0;
  for (const group of groups) {
    await Promise.all(
      group.map(async (bytes) => {
        const mine = ++key;
        await log.append([{ type: 1, id: idOf(mine), payload: payloadOf(mine, bytes) }], signal);
        acknowledged.push({ key: mine, at: disk.operations });
      }),
    );
  }
  await log.close();
  return acknowledged;
}

/** The records of a log that opens on this disk, by key; fails when a record differs from the appended one. */
async function reopen(files: Map<string, Uint8Array>, lengths: readonly number[]): Promise<Set<number>> {
  const found = new Set<number>();
  const places: [number, { segment: number; offset: number }, number][] = [];
  const log = await SegmentLog.open({
    dir: DIR,
    fs: new CrashFileSystem(files),
    segment_bytes: SEGMENT_BYTES,
    signal,
    onRecord: (head, position) => void places.push([head.id[0]!, position, head.payload_bytes]),
  });
  for (const [key, position, bytes] of places) {
    const record = await log.read(position, bytes, 0);
    assert.deepEqual(Buffer.from(record!.payload), Buffer.from(payloadOf(key, lengths[key - 1]!)));
    found.add(key);
  }
  // The log accepts appends after the crash.
  await log.append([{ type: 1, id: idOf(255), payload: payloadOf(255, 10) }], signal);
  await log.close();
  return found;
}

async function checkEveryCrash(
  groups: readonly (readonly number[])[],
  wrap: (disk: CrashFileSystem) => FileSystem = (disk) => disk,
): Promise<number> {
  const disk = new CrashFileSystem();
  const acknowledged = await write(disk, wrap(disk), groups);
  const lengths = groups.flat();
  const random = randomFrom(7);
  let images = 0;
  for (let point = 0; point <= disk.operations; point++) {
    for (const image of disk.imagesAt(point, IMAGES_MAX, random)) {
      images += 1;
      const found = await reopen(image, lengths);
      for (const { key, at } of acknowledged) {
        assert.ok(at > point || found.has(key), `append ${key} was acknowledged and is lost after operation ${point}`);
      }
    }
  }
  return images;
}

function randomFrom(seed: number): () => number {
  let state = seed;
  return () => (state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) / 2 ** 32;
}

test('no acknowledged append is lost at any crash point of a small history', async () => {
  const images = await checkEveryCrash([[10], [700, 20], [1500, 1500], [3000], [1], [90, 90, 90, 90, 4000], [5]]);
  assert.ok(images >= 40, `only ${images} disks were tried`);
});

test('no acknowledged append is lost at sampled crash points of any history', async () => {
  const groups = fc.array(fc.array(fc.integer({ min: 0, max: 2500 }), { minLength: 1, maxLength: 4 }), {
    minLength: 1,
    maxLength: 4,
  });
  await fc.assert(
    fc.asyncProperty(groups, async (history) => void (await checkEveryCrash(history))),
    { numRuns: 8 },
  );
});

test('the crash file system detects an acknowledgement before the sync', async () => {
  const lying = (disk: CrashFileSystem): FileSystem => without(disk, 'sync');
  await assert.rejects(checkEveryCrash([[10], [700, 20]], lying), /acknowledged and is lost/);
});

test('the crash file system detects a new segment whose directory was not synced', async () => {
  const lying = (disk: CrashFileSystem): FileSystem => without(disk, 'syncDir');
  await assert.rejects(checkEveryCrash([[10], [700, 20]], lying), /acknowledged and is lost/);
});

/** The disk with one kind of operation left out, as a log with that bug would leave it out. */
function without(disk: CrashFileSystem, operation: 'sync' | 'syncDir'): FileSystem {
  return {
    create: async (path) => {
      const file = await disk.create(path);
      return operation === 'sync' ? { ...file, sync: async () => undefined } : file;
    },
    open: (path, access) => disk.open(path, access),
    list: (dir) => disk.list(dir),
    makeDir: (dir) => disk.makeDir(dir),
    rename: (from, to) => disk.rename(from, to),
    remove: (path) => disk.remove(path),
    syncDir: async (dir) => (operation === 'syncDir' ? undefined : await disk.syncDir(dir)),
  };
}
