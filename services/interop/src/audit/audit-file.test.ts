import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { appendFile, readFile, stat, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { realFileSystem, type File, type FileSystem } from '@ron/log';
import { FaultyDisk } from '@ron/log/testing';
import { tempDirFor, type After } from '@ron/testkit';
import { AuditFile } from './audit-file.ts';

const MIB = 1024 * 1024;
const FILE_BYTES_MAX = 64 * MIB;

const filesIn = (t: After) => {
  const dir = tempDirFor(t);
  return { dir, now: join(dir, 'audit.log'), before: join(dir, 'audit.log.1') };
};
const text = (path: string): Promise<string> => readFile(path, 'utf8');

/** A file of complete lines with this size, without writing its bytes. */
async function fillTo(path: string, bytes: number): Promise<void> {
  await writeFile(path, '');
  await truncate(path, bytes - 1);
  await appendFile(path, '\n');
}

test('lines are appended in order, also after the file was opened again', async (t) => {
  const { dir, now } = filesIn(t);
  await using first = new AuditFile(realFileSystem, dir);
  await first.write('a\n');
  await first.write('b\nc\n');
  assert.equal(await text(now), 'a\nb\nc\n', 'a killed process loses nothing');
  await first.close();
  await using second = new AuditFile(realFileSystem, dir);
  await second.write('d\n');
  assert.equal(await text(now), 'a\nb\nc\nd\n');
});

test('the end of a line that a crash cut off is cut by the next write, however long it is', async (t) => {
  const { dir, now } = filesIn(t);
  for (const [content, kept] of [
    ['a\nb\n{"x":', 'a\nb\n'],
    ['{"x":', ''],
    ['', ''],
    [`a\n${'x'.repeat(64 * 1024)}`, 'a\n'],
    [`${'a'.repeat(70_000)}\n${'x'.repeat(200_000)}`, `${'a'.repeat(70_000)}\n`],
    ['x'.repeat(150_000), ''],
  ] as const) {
    await writeFile(now, content);
    await using file = new AuditFile(realFileSystem, dir);
    await file.write('next\n');
    assert.equal(await text(now), `${kept}next\n`);
  }
});

test('a file grows to exactly 64 MiB, then replaces the older one', async (t) => {
  const { dir, now, before } = filesIn(t);
  await writeFile(before, 'older\n');
  await fillTo(now, FILE_BYTES_MAX - 2);
  await using file = new AuditFile(realFileSystem, dir);
  await file.write('a\n');
  assert.equal((await stat(now)).size, FILE_BYTES_MAX);
  assert.equal(await text(before), 'older\n');
  await file.write('b\n');
  assert.equal(await text(now), 'b\n');
  assert.equal((await stat(before)).size, FILE_BYTES_MAX);
  await file.write('c\n');
  assert.equal(await text(now), 'b\nc\n');
});

test('a failed write is reported, and the next one continues after the last complete line', async (t) => {
  const { dir, now } = filesIn(t);
  const disk = new FaultyDisk();
  await using file = new AuditFile(disk, dir);
  await file.write('a\n');
  disk.fail('audit.log', 'ENOSPC', 'write');
  await assert.rejects(file.write('b\n'), { code: 'ENOSPC' });
  disk.mend();
  await file.write('c\n');
  assert.equal(await text(now), 'a\nc\n');
});

/** The real file system, but the next write stops after some bytes. */
function tearing(bytes: number): FileSystem {
  let isArmed = true;
  const torn = (file: File): File => ({
    write: async (buffers, position) => {
      if (!isArmed) return await file.write(buffers, position);
      isArmed = false;
      await file.write([Buffer.concat(buffers).subarray(0, bytes)], position);
      throw Object.assign(new Error('ENOSPC'), { code: 'ENOSPC' });
    },
    read: (into, length, position) => file.read(into, length, position),
    sync: () => file.sync(),
    truncate: (size) => file.truncate(size),
    size: () => file.size(),
    close: () => file.close(),
  });
  return {
    create: async (path) => torn(await realFileSystem.create(path)),
    open: async (path, access) => torn(await realFileSystem.open(path, access)),
    list: (path) => realFileSystem.list(path),
    makeDir: (path) => realFileSystem.makeDir(path),
    rename: (from, to) => realFileSystem.rename(from, to),
    remove: (path) => realFileSystem.remove(path),
    syncDir: (path) => realFileSystem.syncDir(path),
  };
}

test('a part that a failed write left does not end a later, shorter line, nor a closed file', async (t) => {
  const { dir, now } = filesIn(t);
  {
    await using file = new AuditFile(tearing(9), dir);
    await assert.rejects(file.write('a long line\nanother\n'));
    await file.write('b\n');
    assert.equal(await text(now), 'b\n');
  }
  await using file = new AuditFile(tearing(14), dir);
  await assert.rejects(file.write('a long line\nanother\n'));
  await file.close();
  assert.equal(await text(now), 'b\n');
});

test('a rotation that fails half-way loses no complete line and is tried again', async (t) => {
  const { dir, now, before } = filesIn(t);
  await fillTo(now, FILE_BYTES_MAX);
  const disk = new FaultyDisk();
  await using file = new AuditFile(disk, dir);
  for (const step of ['sync', 'create', 'write'] as const) {
    disk.fail('audit.log', 'EIO', step);
    await assert.rejects(file.write('a\n'), { code: 'EIO' }, step);
    await assert.rejects(file.write('a\n'), { code: 'EIO' }, step);
  }
  disk.mend();
  await file.write('b\n');
  assert.equal(await text(now), 'b\n');
  assert.equal((await stat(before)).size, FILE_BYTES_MAX);
});

test('a file that cannot be read is not replaced, and each write tries it again', async (t) => {
  const { dir, now } = filesIn(t);
  await writeFile(now, 'a\n{"x":');
  const disk = new FaultyDisk();
  disk.fail('audit.log', 'EIO', 'read');
  await using file = new AuditFile(disk, dir);
  for (const line of ['b\n', 'c\n']) await assert.rejects(file.write(line), { code: 'EIO' });
  assert.equal(await text(now), 'a\n{"x":');
  assert.ok(!existsSync(join(dir, 'audit.log.1')));
  disk.mend();
  await file.write('d\n');
  assert.equal(await text(now), 'a\nd\n');
});
