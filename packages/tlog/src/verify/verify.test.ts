import assert from 'node:assert/strict';
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { CrashFileSystem } from '@ron/log/testing';
import { tempDirFor } from '@ron/testkit';
import { copyLog } from './copy-log.ts';
import { TransparencyLog } from '../log/log.ts';
import { KeyType } from '../note/note-key.ts';
import { memorySigner } from '../testing/index.ts';
import { dirSource, urlSource } from '../tiles/tile-source.ts';
import { verifyLog, type Audit } from './verify.ts';

const ORIGIN = 'example.com/audit';
const DIR = '/log';
const { signal } = new AbortController();
const signers = [memorySigner(ORIGIN), memorySigner(ORIGIN, KeyType.mlDsa44)];
const vkeys = signers.map((signer) => signer.vkey);

const entryOf = (index: number): Buffer => Buffer.from(`entry ${index}`);
const entriesOf = (from: number, to: number): Buffer[] =>
  Array.from({ length: to - from }, (_, index) => entryOf(from + index));

async function write(
  fs: CrashFileSystem | undefined,
  dir: string,
  size: number,
  signed: number,
): Promise<TransparencyLog> {
  const log = await TransparencyLog.open({ dir, origin: ORIGIN, signers, signal, ...(fs !== undefined && { fs }) });
  await log.append(entriesOf(0, signed), signal);
  await log.writeCheckpoint(signal);
  if (size > signed) await log.append(entriesOf(signed, size), signal);
  return log;
}

async function audit(fs: CrashFileSystem): Promise<Audit> {
  await using source = await dirSource(DIR, fs);
  return await verifyLog(source, vkeys, { signal, origin: ORIGIN });
}

test('an intact log passes: as files, as a copy and over HTTP', async (t) => {
  const dir = tempDirFor(t);
  await using log = await write(undefined, join(dir, 'log'), 1030, 1000);
  const expected = { ok: true, checkpoint: log.checkpoint, signed_by: vkeys, first: 0 } as const;
  await using files = await dirSource(join(dir, 'log'));
  const seen: number[] = [];
  const onProgress = (checked: number, size: number): void => void seen.push(checked, size);
  assert.deepEqual(await verifyLog(files, vkeys, { signal, onProgress }), { ...expected, unsigned: 30 });
  assert.deepEqual(seen.slice(-2), [1000, 1000]);

  const copied = await copyLog(files, join(dir, 'copy'), { signal });
  assert.equal(copied, 4 + 4 + 1);
  assert.equal(await copyLog(files, join(dir, 'copy'), { signal }), 0, 'nothing is copied twice');
  await using copy = await dirSource(join(dir, 'copy'));
  assert.deepEqual(await verifyLog(copy, vkeys, { signal }), { ...expected, unsigned: 0 });

  const server = createServer((request, response) => {
    const path = (request.url ?? '').replace('/prefix/', '');
    const found = path === 'checkpoint' ? Promise.resolve(Buffer.from(log.checkpoint!.text)) : log.readTile(path);
    void found.then((bytes) => {
      response.statusCode = bytes === undefined ? 404 : 200;
      response.end(bytes);
    });
  });
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  t.after(() => server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/prefix/`;
  await using remote = urlSource(url);
  assert.deepEqual(await verifyLog(remote, vkeys, { signal }), { ...expected, unsigned: 0 });
  server.closeAllConnections();
});

test('a deleted partial tile is cut from the full one', async (t) => {
  const dir = tempDirFor(t);
  const log = await write(undefined, join(dir, 'log'), 300, 300);
  await using files = await dirSource(join(dir, 'log'));
  await copyLog(files, join(dir, 'copy'), { signal });
  const note = readFileSync(join(dir, 'copy/checkpoint'));
  await log.append(entriesOf(300, 600), signal);
  await log.writeCheckpoint(signal);
  await log.close();
  await copyLog(files, join(dir, 'copy'), { signal });
  // An old checkpoint with a copy that has only the full versions of its partial tiles.
  writeFileSync(join(dir, 'copy/checkpoint'), note);
  for (const path of ['tile/0/001.p', 'tile/entries/001.p']) rmSync(join(dir, 'copy', path), { recursive: true });
  await using copy = await dirSource(join(dir, 'copy'));
  const found = await verifyLog(copy, vkeys, { signal });
  assert.ok(found.ok, JSON.stringify(found));
});

test('a flipped bit anywhere in the files is detected', async () => {
  const disk = new CrashFileSystem();
  await (await write(disk, DIR, 530, 520)).close();
  const before = disk.files();
  const names = [...before.keys()];
  assert.deepEqual(names.map((name) => name.slice(DIR.length + 1)).toSorted(), [
    'bundles',
    'checkpoint',
    'entries',
    'hashes.0',
    'hashes.1',
  ]);
  assert.ok((await audit(new CrashFileSystem(before))).ok);
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(...names), fc.nat(), fc.integer({ min: 0, max: 7 }), async (name, at, bit) => {
      const bytes = Uint8Array.from(before.get(name)!);
      // Hashes after the checkpoint are not verified: they are rebuilt when the log is opened.
      const index = at % (name.endsWith('hashes.0') ? 520 * 32 : bytes.length);
      bytes[index]! ^= 1 << bit;
      const found = await audit(new CrashFileSystem(new Map([...before, [name, bytes]])));
      assert.ok(!found.ok, `bit ${bit} of byte ${index} of ${name}`);
    }),
    { numRuns: 400 },
  );
});

test('a flipped bit anywhere in a copy is detected, and the right file is named', async (t) => {
  const dir = tempDirFor(t);
  const log = await write(undefined, join(dir, 'log'), 520, 520);
  await log.close();
  await using files = await dirSource(join(dir, 'log'));
  const copy = join(dir, 'copy');
  await copyLog(files, copy, { signal });
  const paths = readdirSync(copy, { recursive: true, encoding: 'utf8' }).filter((path) =>
    statSync(join(copy, path)).isFile(),
  );
  assert.equal(paths.length, 3 + 3 + 1 + 1);
  await using source = await dirSource(copy);
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(...paths), fc.nat(), fc.integer({ min: 0, max: 7 }), async (path, at, bit) => {
      const bytes = readFileSync(join(copy, path));
      const changed = Uint8Array.from(bytes);
      changed[at % bytes.length]! ^= 1 << bit;
      writeFileSync(join(copy, path), changed);
      const found = await verifyLog(source, vkeys, { signal });
      writeFileSync(join(copy, path), bytes);
      assert.ok(!found.ok, path);
      // No parent tile has the hash of a partial tile, so the tile or the bundle may be named.
      const isTold = !path.includes('.p/') || path.startsWith('tile/1');
      if (isTold) assert.equal(found.damage.where, path, JSON.stringify(found.damage));
    }),
    { numRuns: 120 },
  );
});

test('damage is described', async () => {
  const disk = new CrashFileSystem();
  await (await write(disk, DIR, 300, 300)).close();
  const damaged = async (name: string, change: (bytes: Uint8Array) => Uint8Array | undefined): Promise<string> => {
    const files = disk.files();
    const next = change(Uint8Array.from(files.get(`${DIR}/${name}`)!));
    if (next === undefined) files.delete(`${DIR}/${name}`);
    else files.set(`${DIR}/${name}`, next);
    const found = await audit(new CrashFileSystem(files));
    assert.ok(!found.ok);
    return `${found.damage.where}: ${found.damage.what}`;
  };
  const flip = (at: number) => (bytes: Uint8Array) => bytes.with(at, bytes[at]! ^ 1);
  assert.match(await damaged('entries', flip(40)), /^entries: entry 2, at byte 34 of \d+, is incomplete or corrupt/);
  assert.match(await damaged('entries', (bytes) => bytes.slice(0, -1)), /entry 299, .* modified or truncated/);
  assert.match(
    await damaged('entries', (bytes) => Buffer.concat([bytes, Buffer.alloc(9)])),
    /entry 300, .* tore the last write/,
  );
  assert.match(await damaged('hashes.0', flip(33)), /^hashes.0: hash 1 does not match entry 1$/);
  assert.match(await damaged('hashes.1', flip(0)), /^hashes.1: hash 0 does not match tile 0 of the level below/);
  assert.match(await damaged('bundles', flip(7)), /^bundles: bundle 0 ends at byte/);
  assert.match(await damaged('checkpoint', () => undefined), /^checkpoint: it is missing/);
  assert.match(await damaged('hashes.1', () => undefined), /hashes.1 of the log is damaged: it is missing/);
});

test('a consistent rewrite of the log is detected by its root', async (t) => {
  const dir = tempDirFor(t);
  await (await write(undefined, join(dir, 'log'), 300, 300)).close();
  const other = await TransparencyLog.open({ dir: join(dir, 'other'), origin: ORIGIN, signers, signal });
  await other.append(entriesOf(1, 301), signal);
  await other.writeCheckpoint(signal);
  await other.close();
  const note = readFileSync(join(dir, 'log/checkpoint'));
  for (const name of ['other', 'copy']) {
    await using files = await dirSource(join(dir, 'other'));
    if (name === 'copy') await copyLog(files, join(dir, 'copy'), { signal });
    writeFileSync(join(dir, name, 'checkpoint'), note);
    await using source = await dirSource(join(dir, name));
    const found = await verifyLog(source, vkeys, { signal });
    assert.ok(!found.ok && found.damage.where === 'checkpoint' && found.damage.what.includes('was signed'), name);
  }
});

test('all keys must have signed unless `any` is set, and the origin must match', async () => {
  const disk = new CrashFileSystem();
  await (await write(disk, DIR, 3, 3)).close();
  await using source = await dirSource(DIR, disk);
  const more = [...vkeys, memorySigner(ORIGIN).vkey];
  const missing = await verifyLog(source, more, { signal });
  assert.ok(!missing.ok && missing.damage.what.includes('did not sign'));
  const any = await verifyLog(source, more, { signal, signatures: 'any' });
  assert.deepEqual(any.ok && any.signed_by, vkeys);
  const other = await verifyLog(source, vkeys, { signal, origin: 'example.com/other' });
  assert.ok(!other.ok && other.damage.what.includes('not to example.com/other'));
});

test('a source that cannot be reached is an error, not damage', async () => {
  await using source = urlSource('http://127.0.0.1:1', { deadline_ms: 1000 });
  await assert.rejects(verifyLog(source, vkeys, { signal }), { code: 'unreachable' });
});
