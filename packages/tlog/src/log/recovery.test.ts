/** How a log handles a disk that crashed, failed, or was tampered with. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CrashFileSystem, type Faults } from '@ron/log/testing';
import type { SignedCheckpoint } from './checkpoint-file.ts';
import { decodeCheckpoint, type Checkpoint } from '../note/checkpoint.ts';
import { TransparencyLog, type TransparencyLogInit } from './log.ts';
import { parseNote } from '../note/note.ts';
import { memorySigner, treeHash } from '../testing/index.ts';

const ORIGIN = 'example.com/audit';
const DIR = '/log';
const { signal } = new AbortController();
const signers = [memorySigner(ORIGIN)];

const entryOf = (index: number): Buffer => Buffer.from(`entry ${index} ${'x'.repeat((index * 37) % 90)}`);
const entriesOf = (from: number, to: number): Buffer[] =>
  Array.from({ length: to - from }, (_, index) => entryOf(from + index));

const open = (fs: CrashFileSystem, init: Partial<TransparencyLogInit> = {}): Promise<TransparencyLog> =>
  TransparencyLog.open({ dir: DIR, origin: ORIGIN, signers, fs, signal, ...init });

/** A closed log of `size` entries with a checkpoint over the first `signed`. */
async function logOf(size: number, signed: number): Promise<{ disk: CrashFileSystem; checkpoint: SignedCheckpoint }> {
  const disk = new CrashFileSystem();
  const log = await open(disk);
  await log.append(entriesOf(0, signed), signal);
  const checkpoint = await log.writeCheckpoint(signal);
  if (size > signed) await log.append(entriesOf(signed, size), signal);
  await log.close();
  return { disk, checkpoint };
}

const files = (disk: CrashFileSystem, change: (files: Map<string, Uint8Array>) => void): CrashFileSystem => {
  const copy = disk.files();
  change(copy);
  return new CrashFileSystem(copy);
};
const at = (name: string): string => `${DIR}/${name}`;
const flipped = (bytes: Uint8Array, index: number): Uint8Array => {
  const copy = Uint8Array.from(bytes);
  copy[index]! ^= 1;
  return copy;
};

test('a log that is shorter than its checkpoint is refused and left unchanged', async () => {
  for (const [size, kept] of [
    [5, 4],
    [300, 299],
    [300, 256],
    [300, 10],
    [512, 511],
    [512, 0],
  ] as const) {
    const { disk } = await logOf(size, size);
    const short = await logOf(kept === 0 ? 1 : kept, kept === 0 ? 1 : kept);
    const entries = kept === 0 ? new Uint8Array(0) : short.disk.files().get(at('entries'))!;
    const cut = files(disk, (all) => all.set(at('entries'), entries));
    const before = cut.files();
    await assert.rejects(open(cut), { code: 'audit_integrity', message: /was truncated/ }, `${kept} of ${size}`);
    assert.deepEqual(cut.files(), before);
  }
  const { disk } = await logOf(3, 3);
  await assert.rejects(open(files(disk, (all) => all.delete(at('entries')))), { code: 'audit_integrity' });
});

test('a log whose root differs from the signed one is refused', async () => {
  const { disk } = await logOf(300, 300);
  const damage = (name: string, index: number): CrashFileSystem =>
    files(disk, (all) => all.set(at(name), flipped(all.get(at(name))!, index)));
  // In the last bundle the entries are read; before it, only the hash over each full bundle.
  const entries = disk.files().get(at('entries'))!;
  await assert.rejects(open(damage('entries', entries.length - 20)), {
    code: 'audit_integrity',
    message: /was truncated/,
  });
  await assert.rejects(open(damage('hashes.1', 5)), { code: 'audit_integrity', message: /differ from those/ });
  await assert.rejects(open(files(disk, (all) => all.delete(at('hashes.1')))), { code: 'audit_integrity' });
  await assert.rejects(open(damage('bundles', 7)), { code: 'audit_integrity' });
  await assert.rejects(open(damage('checkpoint', 0)), { code: 'audit_integrity', message: /cannot be trusted/ });
});

test('the log must extend every checkpoint that is stored elsewhere', async () => {
  const { disk, checkpoint } = await logOf(700, 600);
  const old = (await logOf(100, 100)).checkpoint;
  const rolledBack = (await logOf(400, 300)).disk;
  for (const known of [old, checkpoint, { origin: ORIGIN, size: 650, root: treeHash(entriesOf(0, 650)) }]) {
    await (await open(disk, { known: [known] })).close();
  }
  await assert.rejects(open(rolledBack, { known: [checkpoint] }), { code: 'audit_integrity', message: /only 400/ });
  await assert.rejects(open(new CrashFileSystem(), { known: [checkpoint] }), { code: 'audit_integrity' });
  for (const size of [100, 256, 600, 650]) {
    const known = { origin: ORIGIN, size, root: treeHash(entriesOf(1, size + 1)) };
    await assert.rejects(open(disk, { known: [known] }), { code: 'audit_integrity', message: /differ from those/ });
  }
});

test('a refused log is left unchanged, however long its tail is', async () => {
  const { disk } = await logOf(40_000, 300);
  const image = disk.files();
  // Derived files that a crash tore would be rebuilt if the log were accepted.
  image.set(at('hashes.0'), image.get(at('hashes.0'))!.slice(0, 300 * 32));
  image.set(at('entries'), Buffer.concat([image.get(at('entries'))!, Buffer.from('torn')]));
  const refusing = new CrashFileSystem(image);
  const known = [{ size: 40_001, root: new Uint8Array(32), by: 'the anchor' }];
  await assert.rejects(open(refusing, { known }), {
    code: 'audit_integrity',
    message: /40000 .*40001.* according to the anchor/,
  });
  assert.equal(refusing.operations, 0, 'nothing was written');
});

test('a checkpoint is recorded before it is published, and not published if that fails', async () => {
  const { disk } = await logOf(3, 3);
  const log = await open(disk);
  await log.append(entriesOf(3, 5), signal);
  const published = (): Checkpoint =>
    decodeCheckpoint(parseNote(Buffer.from(disk.files().get(at('checkpoint'))!).toString()).text);
  const forgetful = log.writeCheckpoint(signal, { beforePublish: () => Promise.reject(new Error('no room')) });
  await assert.rejects(forgetful, /no room/);
  assert.deepEqual([log.checkpoint?.size, published().size], [3, 3]);
  const seen: number[] = [];
  await log.writeCheckpoint(signal, { beforePublish: async ({ size }) => void seen.push(size, published().size) });
  assert.deepEqual([seen, published().size], [[5, 3], 5]);
  await log.close();
});

test('a torn write is cut off, and the complete entries before it are kept', async () => {
  const { disk } = await logOf(303, 300);
  const whole = disk.files().get(at('entries'))!;
  const tails = [Uint8Array.of(0), new Uint8Array(4096), Buffer.from([0, 3, 1, 2]), whole.subarray(-30, -1)];
  for (const tail of tails) {
    const torn = files(disk, (all) => all.set(at('entries'), Buffer.concat([whole, tail])));
    let cut_bytes = 0;
    const log = await open(torn, { onCut: (bytes) => (cut_bytes += bytes) });
    assert.equal(cut_bytes, tail.length);
    assert.equal(log.size, 303);
    assert.equal(torn.files().get(at('entries'))!.length, whole.length);
    await log.append(entriesOf(303, 310), signal);
    assert.deepEqual(Buffer.from((await log.writeCheckpoint(signal)).root), treeHash(entriesOf(0, 310)));
    await log.close();
  }
});

test('unsynced entries of a killed process become durable before they count', async () => {
  const disk = new CrashFileSystem();
  const log = await open(disk);
  await log.append(entriesOf(0, 3), signal);
  // The process died before the sync; the kernel still has the written bytes, until the power fails.
  const file = await disk.open(at('entries'), 'write');
  const longer = (await logOf(4, 4)).disk.files().get(at('entries'))!;
  await file.write([longer], 0);
  const again = await open(disk);
  assert.equal(again.size, 4);
  const { root } = await again.writeCheckpoint(signal);
  for (const image of disk.imagesAt(disk.operations, 50, () => 0)) {
    const after = await open(new CrashFileSystem(image), { known: [{ size: 4, root }] });
    await after.close();
  }
});

test('hashes after the checkpoint do not matter after a crash', async () => {
  const { disk, checkpoint } = await logOf(1000, 300);
  for (const spoil of [(bytes: Uint8Array) => new Uint8Array(bytes.length), () => new Uint8Array(0)]) {
    const spoilt = files(disk, (all) => {
      for (const [name, keep] of [
        ['hashes.0', 300 * 32],
        ['hashes.1', 32],
        ['bundles', 8],
      ] as const) {
        const bytes = all.get(at(name))!;
        all.set(at(name), Buffer.concat([bytes.subarray(0, keep), spoil(bytes.subarray(keep))]));
      }
    });
    const log = await open(spoilt, { known: [checkpoint] });
    assert.deepEqual(Buffer.from((await log.writeCheckpoint(signal)).root), treeHash(entriesOf(0, 1000)));
    assert.deepEqual(Buffer.from(await log.entry(700)), entryOf(700));
    await log.close();
  }
});

/** A disk on which the operations selected by `which` fail while `on` is set. */
function failing(
  which: (operation: string, path: string) => boolean,
  code: string,
): { on: boolean; disk: CrashFileSystem } {
  const faults: Faults = {
    before: (operation, path) => {
      if (state.on && which(operation, path)) throw Object.assign(new Error(code), { code });
    },
  };
  const state = { on: false, disk: new CrashFileSystem(new Map(), faults) };
  return state;
}

const FAILURES = [
  ['no space for entries', 'write', 'entries', 'ENOSPC', 'storage_full'],
  ['no space for hashes', 'write', 'hashes.0', 'ENOSPC', 'storage_full'],
  ['a sync of entries fails', 'sync', 'entries', 'EIO', 'not_ready'],
  ['the disk is dead', 'write', '', 'EIO', 'not_ready'],
] as const;

for (const [what, operation, name, code, expected] of FAILURES) {
  test(`${what}: the append fails and is rolled back, and the log recovers`, async () => {
    const state = failing((done, path) => done === operation && path.startsWith(at(name)), code);
    const log = await open(state.disk);
    await log.append(entriesOf(0, 300), signal);
    await log.writeCheckpoint(signal);
    await log.append(entriesOf(300, 310), signal);
    state.on = true;
    await assert.rejects(log.append(entriesOf(1000, 1300), signal), { code: expected });
    await assert.rejects(log.append(entriesOf(1000, 1001), signal), { code: expected });
    assert.equal(log.size, 310);
    state.on = false;
    assert.deepEqual(await log.append(entriesOf(310, 320), signal), { first: 310 });
    const { root } = await log.writeCheckpoint(signal);
    assert.deepEqual(Buffer.from(root), treeHash(entriesOf(0, 320)));
    await log.close();
    const again = await open(new CrashFileSystem(state.disk.files()));
    assert.equal(again.size, 320);
    await again.close();
  });
}

test('a checkpoint that cannot be made durable is not published, and its entries are not lost', async () => {
  for (const [operation, name] of [
    ['sync', 'hashes.0'],
    ['sync', 'checkpoint.tmp'],
    ['rename', ''],
    ['create', ''],
  ] as const) {
    const state = failing((done, path) => done === operation && path.startsWith(at(name)), 'EIO');
    const log = await open(state.disk);
    await log.append(entriesOf(0, 3), signal);
    const first = await log.writeCheckpoint(signal);
    await log.append(entriesOf(3, 270), signal);
    state.on = true;
    await assert.rejects(log.writeCheckpoint(signal), { code: 'not_ready' }, operation);
    assert.equal(log.checkpoint, first);
    state.on = false;
    const { root } = await log.writeCheckpoint(signal);
    assert.deepEqual(Buffer.from(root), treeHash(entriesOf(0, 270)));
    // Regardless of the failed sync, the disk has everything that the checkpoint covers.
    for (const image of state.disk.imagesAt(state.disk.operations, 50, () => 0.3)) {
      const again = await open(new CrashFileSystem(image));
      assert.deepEqual(Buffer.from(again.checkpoint!.root), Buffer.from(root));
      await again.close();
    }
    await log.close();
  }
});

test('a hanging signer fails only its own checkpoint, at its deadline', async () => {
  const disk = new CrashFileSystem();
  let isHanging = true;
  const signer = {
    ...signers[0]!,
    sign: (...args: Parameters<(typeof signers)[0]['sign']>) =>
      isHanging ? new Promise<never>(() => undefined) : signers[0]!.sign(...args),
  };
  const log = await open(disk, { signers: [signer] });
  await log.append(entriesOf(0, 3), signal);
  const leaving = new AbortController();
  const pending = log.writeCheckpoint(leaving.signal);
  await log.append(entriesOf(3, 4), signal);
  leaving.abort(new Error('too late'));
  await assert.rejects(pending, /too late/);
  assert.equal(log.checkpoint, undefined);
  isHanging = false;
  assert.equal((await log.writeCheckpoint(signal)).size, 4);
  await log.close();
});
