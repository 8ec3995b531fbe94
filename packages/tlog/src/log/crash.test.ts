/** Every crash point of small histories: acknowledged entries and signed checkpoints survive, and the log can continue. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { File, FileSystem } from '@ron/log';
import { CrashFileSystem } from '@ron/log/testing';
import type { SignedCheckpoint } from './checkpoint-file.ts';
import { TransparencyLog } from './log.ts';
import { memorySigner, treeHash } from '../testing/index.ts';

const ORIGIN = 'example.com/audit';
const { signal } = new AbortController();
const signers = [memorySigner(ORIGIN)];
const IMAGES_MAX = 60;

/** An append of so many entries, or a checkpoint. */
type Step = number | 'checkpoint';

interface Acknowledged {
  /** The number of disk operations at this point. */
  readonly at: number;
  readonly size: number;
  readonly checkpoint: SignedCheckpoint | undefined;
}

const entryOf = (index: number): Buffer => Buffer.from(`${index} ${'x'.repeat((index * 71) % 600)}`);
const entriesOf = (from: number, to: number): Buffer[] =>
  Array.from({ length: to - from }, (_, index) => entryOf(from + index));
const open = (fs: FileSystem): Promise<TransparencyLog> =>
  TransparencyLog.open({ dir: '/log', origin: ORIGIN, signers, fs, signal });

async function write(disk: CrashFileSystem, fs: FileSystem, steps: readonly Step[]): Promise<Acknowledged[]> {
  const acknowledged: Acknowledged[] = [];
  const log = await open(fs);
  for (const step of steps) {
    if (step === 'checkpoint') await log.writeCheckpoint(signal);
    else await log.append(entriesOf(log.size, log.size + step), signal);
    acknowledged.push({ at: disk.operations, size: log.size, checkpoint: log.checkpoint });
  }
  await log.close();
  return acknowledged;
}

async function checkImage(
  image: Map<string, Uint8Array>,
  known: Acknowledged | undefined,
  size_max: number,
): Promise<void> {
  const log = await open(new CrashFileSystem(image));
  assert.ok(log.size >= (known?.size ?? 0), `only ${log.size} of ${known?.size} acknowledged entries survived`);
  assert.ok(log.size <= size_max, 'the log has entries that were never appended');
  assert.ok((log.checkpoint?.size ?? 0) >= (known?.checkpoint?.size ?? 0), 'an acknowledged checkpoint was lost');
  const { size } = log;
  if (size > 0) assert.deepEqual(Buffer.from(await log.entry(size - 1)), entryOf(size - 1));
  // The log can continue, and its root is then the same as without the crash.
  await log.append(entriesOf(size, size + 3), signal);
  const { root } = await log.writeCheckpoint(signal);
  assert.deepEqual(Buffer.from(root), rootOf(size + 3));
  await log.close();
}

const roots = new Map<number, Buffer>();
function rootOf(size: number): Buffer {
  const known = roots.get(size) ?? treeHash(entriesOf(0, size));
  roots.set(size, known);
  return known;
}

async function checkEveryCrash(
  steps: readonly Step[],
  wrap: (disk: CrashFileSystem) => FileSystem = (disk) => disk,
): Promise<number> {
  const disk = new CrashFileSystem();
  const acknowledged = await write(disk, wrap(disk), steps);
  const random = randomFrom(7);
  let images = 0;
  for (let point = 0; point <= disk.operations; point++) {
    const known = acknowledged.findLast(({ at }) => at <= point);
    for (const image of disk.imagesAt(point, IMAGES_MAX, random)) {
      images += 1;
      await checkImage(image, known, acknowledged.at(-1)!.size);
    }
  }
  return images;
}

function randomFrom(seed: number): () => number {
  let state = seed;
  return () => (state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) / 2 ** 32;
}

test('no acknowledged entry or checkpoint is lost at any crash point of a small history', async () => {
  const images = await checkEveryCrash([2, 'checkpoint', 1, 3, 'checkpoint', 250, 4, 'checkpoint', 1]);
  assert.ok(images >= 100, `only ${images} disk images were tried`);
});

test('no acknowledged entry or checkpoint is lost at sampled crash points of any history', async () => {
  const step: fc.Arbitrary<Step> = fc.oneof(
    fc.integer({ min: 1, max: 9 }),
    fc.constant<Step>('checkpoint'),
    fc.constant(255),
  );
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { minLength: 1, maxLength: 5 }),
      async (steps) => void (await checkEveryCrash(steps)),
    ),
    { numRuns: 5 },
  );
});

/** A disk that omits some syncs, as a log with that bug would. */
function forgetting(disk: CrashFileSystem, which: (operation: string, path: string) => boolean): FileSystem {
  const file = (path: string, found: File): File =>
    which('sync', path) ? { ...found, sync: async () => undefined } : found;
  return {
    create: async (path) => file(path, await disk.create(path)),
    open: async (path, access) => file(path, await disk.open(path, access)),
    list: (dir) => disk.list(dir),
    makeDir: (dir) => disk.makeDir(dir),
    rename: (from, to) => disk.rename(from, to),
    remove: (path) => disk.remove(path),
    syncDir: async (dir) => (which('syncDir', dir) ? undefined : await disk.syncDir(dir)),
  };
}

const BUGS = [
  ['entries are acknowledged before they are synced', 'sync', /entries$/, /acknowledged entries/],
  ['hashes are not synced before the checkpoint', 'sync', /hashes/, /damaged|differ from those/],
  [
    'the ends of bundles are not synced before the checkpoint',
    'sync',
    /bundles/,
    /damaged|differ from those|truncated/,
  ],
  ['the checkpoint is renamed before it is synced', 'sync', /checkpoint/, /cannot be trusted/],
  ['names are not synced', 'syncDir', /log/, /acknowledged|damaged|truncated/],
] as const;

for (const [bug, operation, path, message] of BUGS) {
  test(`the shim catches: ${bug}`, async () => {
    const lying = (disk: CrashFileSystem): FileSystem =>
      forgetting(disk, (done, name) => done === operation && path.test(name));
    await assert.rejects(checkEveryCrash([300, 'checkpoint', 3], lying), message);
  });
}
