import assert from 'node:assert/strict';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { leafHash } from '../tree/hash.ts';
import { tempDirFor } from '@ron/testkit';
import { TransparencyLog, type TransparencyLogInit } from './log.ts';
import { KeyType, parseVkey, verifyNote } from '../note/note-key.ts';
import { parseNote } from '../note/note.ts';
import { memorySigner, proof as referenceProof, treeHash } from '../testing/index.ts';
import { encodeBundle } from '../tiles/tiles.ts';
import { verifyConsistency, verifyInclusion } from '../tree/tree.ts';

const ORIGIN = 'example.com/audit';
const { signal } = new AbortController();
const signers = [memorySigner(ORIGIN), memorySigner(ORIGIN, KeyType.mlDsa44)];

const open = (dir: string, init: Partial<TransparencyLogInit> = {}): Promise<TransparencyLog> =>
  TransparencyLog.open({ dir, origin: ORIGIN, signers, signal, ...init });

const entryOf = (index: number): Buffer => Buffer.from(`entry ${index} ${'x'.repeat(index % 40)}`);
const entriesOf = (from: number, to: number): Buffer[] =>
  Array.from({ length: to - from }, (_, index) => entryOf(from + index));

test('appended entries survive a restart with the same root and proofs', async (t) => {
  const dir = tempDirFor(t);
  const log = await open(dir);
  assert.equal(log.checkpoint, undefined);
  assert.deepEqual(await log.append(entriesOf(0, 5), signal), { first: 0 });
  assert.deepEqual(await log.append(entriesOf(5, 700), signal), { first: 5 });
  const signed = await log.writeCheckpoint(signal);
  assert.deepEqual(await log.append(entriesOf(700, 710), signal), { first: 700 });
  await log.close();

  const again = await open(dir, { known: [signed] });
  assert.equal(again.size, 710);
  assert.deepEqual(again.checkpoint, signed);
  assert.deepEqual(Buffer.from(signed.root), treeHash(entriesOf(0, 700)));
  const latest = await again.writeCheckpoint(signal);
  assert.deepEqual(Buffer.from(latest.root), treeHash(entriesOf(0, 710)));
  for (const index of [0, 1, 255, 256, 511, 512, 699, 709]) {
    const { leaf, path, size } = await again.proof(index);
    assert.deepEqual(Buffer.from(leaf), leafHash(entryOf(index)));
    assert.ok(verifyInclusion({ leaf, index, size, path, root: latest.root }));
    assert.deepEqual(Buffer.from(await again.entry(index)), entryOf(index));
  }
  const path = await again.consistency(700, 710);
  assert.deepEqual(
    path.map((hash) => Buffer.from(hash)),
    referenceProof(700, entriesOf(0, 710)),
  );
  assert.ok(verifyConsistency({ from: 700, from_root: signed.root, to: 710, to_root: latest.root, path }));
  await again.close();
});

test('a checkpoint is signed by every signer, in text and in the subtree structure', async (t) => {
  await using log = await open(tempDirFor(t));
  await log.append(entriesOf(0, 3), signal);
  const { text } = await log.writeCheckpoint(signal);
  const keys = signers.map((signer) => parseVkey(signer.vkey));
  assert.deepEqual(verifyNote(parseNote(text), keys), keys);
  const [origin, size] = text.split('\n');
  assert.deepEqual([origin, size], [ORIGIN, '3']);
});

test('only tiles and bundles that a checkpoint covers are served', async (t) => {
  const dir = tempDirFor(t);
  await using log = await open(dir);
  await log.append(entriesOf(0, 300), signal);
  assert.equal(await log.readTile('tile/0/000'), undefined, 'no checkpoint yet');
  await log.writeCheckpoint(signal);
  await log.append(entriesOf(300, 600), signal);
  assert.deepEqual(await log.readTile('tile/0/000'), Buffer.concat(entriesOf(0, 256).map(leafHash)));
  assert.deepEqual(await log.readTile('tile/0/001.p/44'), Buffer.concat(entriesOf(256, 300).map(leafHash)));
  assert.deepEqual(await log.readTile('tile/1/000.p/1'), treeHash(entriesOf(0, 256)));
  assert.deepEqual(await log.readTile('tile/entries/000'), encodeBundle(entriesOf(0, 256)));
  assert.deepEqual(await log.readTile('tile/entries/001.p/44'), encodeBundle(entriesOf(256, 300)));
  for (const path of ['tile/0/001', 'tile/0/001.p/45', 'tile/1/000', 'tile/2/000.p/1', 'tile/entries/002.p/1']) {
    assert.equal(await log.readTile(path), undefined, path);
  }
  for (const path of [
    'checkpoint',
    'entries',
    'tile/0/../../entries',
    'tile/00/000',
    'tile/0/x000/000',
    '/etc/passwd',
  ]) {
    assert.equal(await log.readTile(path), undefined, path);
  }
});

test('an entry that is too long, a missing index and a size beyond the end are refused', async (t) => {
  await using log = await open(tempDirFor(t));
  await log.append([new Uint8Array(65_535), new Uint8Array(0)], signal);
  await assert.rejects(log.append([new Uint8Array(65_536)], signal), { code: 'payload_too_large' });
  assert.equal((await log.entry(0)).length, 65_535);
  assert.equal((await log.entry(1)).length, 0);
  await assert.rejects(log.entry(2), { code: 'not_found' });
  await assert.rejects(log.entry(-1), { code: 'not_found' });
  await assert.rejects(log.proof(0, 3), { code: 'not_found' });
  await assert.rejects(log.proof(0), { code: 'not_found' });
  await assert.rejects(log.consistency(2, 1), { code: 'not_found' });
});

test('entries are read in order from any index, until the end that the log had', async (t) => {
  await using log = await open(tempDirFor(t));
  await log.append(entriesOf(0, 700), signal);
  const read = async (from: number): Promise<Buffer[]> => {
    const found: Buffer[] = [];
    for await (const { first, entries } of log.entries(from, signal)) {
      assert.equal(first, from + found.length);
      found.push(...entries.map((entry) => Buffer.from(entry)));
      if (log.size === 700) await log.append(entriesOf(700, 701), signal);
    }
    return found;
  };
  assert.deepEqual(await read(0), entriesOf(0, 700));
  for (const from of [1, 255, 256, 257, 699, 700, 701]) assert.deepEqual(await read(from), entriesOf(from, 701));
  await assert.rejects(read(702), { code: 'not_found' });
  await assert.rejects(log.entries(0, AbortSignal.abort(new Error('enough'))).next(), { message: 'enough' });
});

test('an entry that changed on disk ends the reading with its index', async (t) => {
  const dir = tempDirFor(t);
  await using log = await open(dir);
  await log.append(entriesOf(0, 300), signal);
  const file = join(dir, 'entries');
  const bytes = readFileSync(file);
  bytes[bytes.length - 12]! ^= 1;
  writeFileSync(file, bytes);
  const slices = log.entries(0, signal);
  assert.equal((await slices.next()).value?.entries.length, 256);
  await assert.rejects(slices.next(), { code: 'audit_integrity', message: /entry 299/ });
});

test('nothing is signed twice: without new entries the current checkpoint is returned', async (t) => {
  const dir = tempDirFor(t);
  let signatures = 0;
  const counting = {
    ...signers[0]!,
    sign: (...args: Parameters<(typeof signers)[0]['sign']>) => {
      signatures += 1;
      return signers[0]!.sign(...args);
    },
  };
  const log = await open(dir, { signers: [counting] });
  await log.append(entriesOf(0, 1), signal);
  assert.equal(await log.writeCheckpoint(signal), await log.writeCheckpoint(signal));
  assert.equal(signatures, 1);
  await log.close();
  // With a new signer it is signed again. The old key is trusted only if it is listed in `vkeys`.
  const other = memorySigner(ORIGIN);
  await assert.rejects(open(dir, { signers: [other] }), { code: 'audit_integrity' });
  const rotated = await open(dir, { signers: [other], vkeys: [counting.vkey] });
  const { text } = await rotated.writeCheckpoint(signal);
  assert.deepEqual(verifyNote(parseNote(text), [parseVkey(other.vkey)]).length, 1);
  await rotated.close();
});

test('only one process can open a log, and close is idempotent', async (t) => {
  const dir = tempDirFor(t);
  const log = await open(dir);
  await assert.rejects(open(dir), { code: 'conflict' });
  await log.close();
  await log.close();
  await assert.rejects(log.append(entriesOf(0, 1), signal), { code: 'closed' });
  await (await open(dir)).close();
  assert.ok(!readdirSync(dir).includes('checkpoint.tmp'));
});

test('close waits for reads in progress and refuses new ones', async (t) => {
  const log = await open(tempDirFor(t));
  await log.append(entriesOf(0, 600), signal);
  await log.writeCheckpoint(signal);
  const reads = [log.readTile('tile/0/000'), log.readTile('tile/entries/001')];
  const closing = log.close();
  for (const found of await Promise.allSettled(reads)) {
    if (found.status === 'rejected') assert.equal(found.reason.code, 'closed');
    else assert.ok(found.value!.length > 0);
  }
  await closing;
  await assert.rejects(log.readTile('tile/0/000'), { code: 'closed' });
});

test('appends beyond the queue limit are refused immediately', async (t) => {
  await using log = await open(tempDirFor(t));
  const results = await Promise.allSettled(
    Array.from({ length: 40 }, (_, index) => log.append([entryOf(index)], signal)),
  );
  const firsts = results.flatMap((each) => (each.status === 'fulfilled' ? [each.value.first] : []));
  assert.deepEqual(
    firsts,
    Array.from({ length: 17 }, (_, index) => index),
  );
  for (const each of results) if (each.status === 'rejected') assert.equal(each.reason.code, 'busy');
  assert.equal(log.size, 17);
});
