/** A log whose older entries were removed: the rest is provable, and a removal that the log does not announce is damage. */
import assert from 'node:assert/strict';
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { CrashFileSystem } from '@ron/log/testing';
import { realFileSystem, type FileSystem } from '@ron/log';
import { tempDirFor } from '@ron/testkit';
import { memorySigner, treeHash } from '../testing/index.ts';
import { dirSource, type TileSource } from '../tiles/tile-source.ts';
import { leafHash } from '../tree/hash.ts';
import { verifyConsistency, verifyInclusion } from '../tree/tree.ts';
import { copyLog } from '../verify/copy-log.ts';
import { verifyLog, type Audit } from '../verify/verify.ts';
import { inspectLog, TransparencyLog, type TransparencyLogInit } from './log.ts';
import { encodeMark } from './prune-mark.ts';

const ORIGIN = 'example.com/audit';
const DIR = '/log';
const { signal } = new AbortController();
const signers = [memorySigner(ORIGIN)];
const vkeys = signers.map(({ vkey }) => vkey);

const announcement = (before: number): Buffer => Buffer.from(JSON.stringify({ op: 'prune', before }));
const entryOf = (index: number): Buffer => Buffer.from(`entry ${index} ${'x'.repeat((index * 37) % 90)}`);
const entriesOf = (from: number, to: number): Buffer[] =>
  Array.from({ length: to - from }, (_, index) => entryOf(from + index));
const open = (fs: FileSystem, init: Partial<TransparencyLogInit> = {}): Promise<TransparencyLog> =>
  TransparencyLog.open({ dir: DIR, origin: ORIGIN, signers, fs, signal, ...init });

/** Announces a pruning and signs the announcement. */
async function announce(log: TransparencyLog, before: number): Promise<number> {
  const { first } = await log.append([announcement(before)], signal);
  await log.writeCheckpoint(signal);
  return first;
}

/** A log of `size` entries and their announcement, pruned. Returns all its entries. */
async function pruned(fs: FileSystem, size: number, before: number): Promise<{ log: TransparencyLog; all: Buffer[] }> {
  const log = await open(fs);
  await log.append(entriesOf(0, size), signal);
  const entry = await announce(log, before);
  await log.prune({ before, entry }, signal);
  return { log, all: [...entriesOf(0, size), announcement(before)] };
}

async function audit(fs: FileSystem, init: Partial<Parameters<typeof verifyLog>[2]> = {}): Promise<Audit> {
  await using source = await dirSource(DIR, fs);
  return await verifyLog(source, vkeys, { signal, ...init });
}

test('the rest of a pruned log is provable, verifies and grows, also after a restart', async () => {
  const disk = new CrashFileSystem();
  const { log: writer, all } = await pruned(disk, 1000, 512);
  await writer.close();
  for (let round = 0; round < 2; round++) {
    const log = await open(disk);
    assert.equal(log.first, 512);
    const { size, root } = await log.writeCheckpoint(signal);
    assert.deepEqual(Buffer.from(root), treeHash(all));
    for (const index of [512, 700, size - 1]) {
      assert.deepEqual(Buffer.from(await log.entry(index)), all[index]);
      const proof = await log.proof(index);
      assert.ok(verifyInclusion({ ...proof, leaf: leafHash(all[index]!), root }));
    }
    for (const from of [256, 512, 600, size - 1]) {
      const [from_root, path] = [treeHash(all.slice(0, from)), await log.consistency(from, size)];
      assert.ok(verifyConsistency({ from, from_root, to: size, to_root: root, path }), `from ${from}`);
    }
    for (const lost of [log.entry(511), log.proof(0), log.consistency(300, size)])
      await assert.rejects(lost, { code: 'not_found', message: /pruned/ });
    for (const path of ['tile/entries/001', 'tile/0/001', 'tile/0/000.p/7'])
      assert.equal(await log.readTile(path), undefined, path);
    for (const path of ['tile/entries/002', 'tile/0/002', 'tile/1/000.p/3'])
      assert.ok((await log.readTile(path)) !== undefined, path);
    const result = await audit(disk);
    assert.ok(result.ok, JSON.stringify(result));
    assert.equal(result.first, 512);
    await log.append(entriesOf(size, size + 300), signal);
    all.push(...entriesOf(size, size + 300));
    await log.close();
  }
});

test('a log can be pruned again, across many tiles of the level above', async () => {
  const disk = new CrashFileSystem();
  const { log } = await pruned(disk, 70_000, 256 * 3);
  const before = 256 * 260;
  const entry = await announce(log, before);
  await log.prune({ before, entry }, signal);
  await log.close();
  const result = await audit(disk);
  assert.ok(result.ok, JSON.stringify(result));
  assert.equal(result.first, before);
  await (await open(disk)).close();
});

test('the disk space is freed', async (t) => {
  const dir = join(tempDirFor(t), 'log');
  const log = await open(realFileSystem, { dir });
  for (let each = 0; each < 8; each++) await log.append(entriesOf(0, 4096), signal);
  const entry = await announce(log, 256 * 120);
  const blocks = (): number => statSync(join(dir, 'entries')).blocks + statSync(join(dir, 'hashes.0')).blocks;
  const [bytes, used] = [log.bytes, blocks()];
  const freed = await log.prune({ before: 256 * 120, entry }, signal);
  assert.equal(log.bytes, bytes - freed);
  assert.ok(freed > 0.9 * bytes);
  assert.ok(blocks() < 0.2 * used, `${blocks()} of ${used} blocks are left`);
  await log.close();
  const again = await open(realFileSystem, { dir });
  assert.equal(again.bytes, bytes - freed);
  await again.close();
});

test('only announced and signed prunings between two bundles are allowed', async () => {
  const log = await open(new CrashFileSystem());
  await log.append(entriesOf(0, 600), signal);
  const entry = await announce(log, 256);
  for (const mark of [
    { before: 300, entry },
    { before: 512, entry },
    { before: 256, entry: 599 },
    { before: 256, entry: entry + 1 },
    { before: 256, entry: 3 },
    { before: 0, entry },
  ])
    await assert.rejects(log.prune(mark, signal), { code: 'conflict' }, JSON.stringify(mark));
  const { first } = await log.append([announcement(512)], signal);
  await assert.rejects(log.prune({ before: 512, entry: first }, signal), { code: 'conflict' }, 'not signed yet');
  await log.prune({ before: 256, entry }, signal);
  await assert.rejects(log.prune({ before: 256, entry }, signal), { code: 'conflict' }, 'done already');
  await log.close();
});

test('a removal that the log does not announce is found, at the start and by an audit', async () => {
  const disk = new CrashFileSystem();
  const log = await open(disk);
  await log.append(entriesOf(0, 1000), signal);
  const entry = await announce(log, 512);
  await log.close();
  const tampered = (mark: Buffer): CrashFileSystem => {
    const files = disk.files();
    files.set(`${DIR}/pruned`, mark);
    return new CrashFileSystem(files);
  };
  for (const mark of [
    encodeMark({ before: 768, entry }),
    encodeMark({ before: 512, entry: 999 }),
    encodeMark({ before: 512, entry: 5000 }),
    Buffer.from('{"before":512}'),
    Buffer.from('nothing'),
  ]) {
    await assert.rejects(open(tampered(mark)), { code: 'audit_integrity' }, mark.toString());
    await assert.rejects(inspectLog({ dir: DIR, origin: ORIGIN, signers, fs: tampered(mark), signal }));
    const result = await audit(tampered(mark)).catch((error: unknown) => error as Error);
    assert.ok('ok' in result && !result.ok, mark.toString());
  }
  // Without the mark, the missing entries are damage; with it, missing entries above it are.
  const short = await open(disk);
  await short.prune({ before: 512, entry }, signal);
  await short.close();
  const files = disk.files();
  files.delete(`${DIR}/pruned`);
  assert.equal((await audit(new CrashFileSystem(files))).ok, false);
  const holed = disk.files();
  const entries = Uint8Array.from(holed.get(`${DIR}/entries`)!);
  entries.fill(0, 0, Math.floor(entries.length * 0.8));
  holed.set(`${DIR}/entries`, entries);
  assert.equal((await audit(new CrashFileSystem(holed))).ok, false);
});

test('checkpoints from before the pruning are not damage at the start; an audit says that they cannot be compared', async () => {
  const disk = new CrashFileSystem();
  const { log, all } = await pruned(disk, 1000, 512);
  await log.close();
  const known = [100, 256, 512, 700].map((size) => ({ size, root: treeHash(all.slice(0, size)), by: `of ${size}` }));
  await (await open(disk, { known })).close();
  const forged = [256, 512, 700].map((size) => ({ size, root: treeHash(all.slice(1, size + 1)) }));
  for (const each of forged) await assert.rejects(open(disk, { known: [each] }), { code: 'audit_integrity' });
  assert.ok((await audit(disk, { known: known.slice(1) })).ok);
  for (const each of forged) assert.equal((await audit(disk, { known: [each] })).ok, false);
  await assert.rejects(audit(disk, { known }), { code: 'not_found', message: /of 100 covers 100 entries.*pruned/ });
});

test('a crash at any moment of a pruning leaves the whole log or the pruned one', async () => {
  const disk = new CrashFileSystem();
  const writer = await open(disk);
  await writer.append(entriesOf(0, 300), signal);
  const entry = await announce(writer, 256);
  await writer.close();
  const crashing = new CrashFileSystem(disk.files());
  const log = await open(crashing);
  const begun = crashing.operations;
  await log.prune({ before: 256, entry }, signal);
  await log.close();
  const seen = new Set<number>();
  for (let point = begun; point <= crashing.operations; point++) {
    for (const image of crashing.imagesAt(point, 12, Math.random)) {
      const after = new CrashFileSystem(image);
      const found = await open(after);
      seen.add(found.first);
      assert.deepEqual(Buffer.from(await found.entry(found.first)), entryOf(found.first));
      await found.append(entriesOf(0, 3), signal);
      await found.writeCheckpoint(signal);
      await found.close();
      const result = await audit(after);
      assert.ok(result.ok, JSON.stringify(result));
    }
  }
  assert.deepEqual(seen, new Set([0, 256]));
});

test('an archive that was copied before each pruning is the whole log', async (t) => {
  const dir = tempDirFor(t);
  const [from, archive, late] = [join(dir, 'log'), join(dir, 'archive'), join(dir, 'late')];
  const log = await open(realFileSystem, { dir: from });
  const source = await dirSource(from);
  await log.append(entriesOf(0, 1000), signal);
  for (const before of [512, 1024]) {
    const entry = await announce(log, before);
    await copyLog(source, archive, { signal });
    await log.prune({ before, entry }, signal);
    await log.append(entriesOf(log.size, log.size + 300), signal);
    await log.writeCheckpoint(signal);
  }
  for (const [copy, first] of [
    [archive, 0],
    [late, 1024],
  ] as const) {
    await copyLog(source, copy, { signal });
    await using copied = await dirSource(copy);
    const result = await verifyLog(copied, vkeys, { signal });
    assert.ok(result.ok, JSON.stringify(result));
    assert.equal(result.first, first);
  }
  await source[Symbol.asyncDispose]();
  await log.close();
});

test('a log can be audited while it is pruned', async (t) => {
  const dir = join(tempDirFor(t), 'log');
  const log = await open(realFileSystem, { dir });
  await log.append(entriesOf(0, 6000), signal);
  await log.writeCheckpoint(signal);
  await using source = await dirSource(dir);
  for (const before of [1024, 2048, 4096]) {
    const entry = await announce(log, before);
    let pruning: Promise<unknown> | undefined;
    const slow: TileSource = {
      name: source.name,
      checkpoint: (until) => source.checkpoint(until),
      mark: (until) => source.mark(until),
      // The audit has read the mark when the entries are removed.
      tile: async (path, until) => {
        if (path.startsWith('tile/entries')) await (pruning ??= log.prune({ before, entry }, signal));
        return await source.tile(path, until);
      },
      [Symbol.asyncDispose]: () => Promise.resolve(),
    };
    const result = await verifyLog(slow, vkeys, { signal });
    assert.ok(result.ok, JSON.stringify(result));
    assert.equal(result.first, before);
  }
  await log.close();
});
