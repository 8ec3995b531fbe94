import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MemoryDisk } from './memory-disk.ts';

test('a full memory disk refuses the write and keeps the old content', async () => {
  const disk = new MemoryDisk(10);
  const file = await disk.create('/a/x');
  await file.write([Buffer.from('12345678')], 0);
  await assert.rejects(file.write([Buffer.from('abc')], 8), { code: 'ENOSPC' });
  const bytes = Buffer.alloc(10);
  assert.equal(await (await disk.open('/a/x')).read(bytes, 10, 0), 8);
  await file.truncate(2);
  await file.write([Buffer.from('x')], 3);
  assert.equal(await file.read(bytes, 10, 0), 4);
  assert.deepEqual(bytes.subarray(0, 4), Buffer.from('12\0x'));
  assert.deepEqual(await disk.room(), { free_bytes: 6, total_bytes: 10 });
});

test('names behave as on a disk, and a replaced or removed file frees its room', async () => {
  const disk = new MemoryDisk(10);
  for (const [path, text] of Object.entries({ '/a/x': '123', '/a/y': '45', '/a/b/z': '6' })) {
    await (await disk.create(path)).write([Buffer.from(text)], 0);
  }
  await assert.rejects(disk.create('/a/x'), { code: 'EEXIST' });
  assert.deepEqual((await disk.list('/a')).toSorted(), ['x', 'y']);
  await disk.rename('/a/x', '/a/y');
  assert.deepEqual(await disk.list('/a'), ['y']);
  assert.equal(await (await disk.open('/a/y')).size(), 3);
  await disk.remove('/a/b/z');
  await assert.rejects(disk.open('/a/b/z'), { code: 'ENOENT' });
  assert.equal((await disk.room()).free_bytes, 7);
});

test('discarded bytes read as zeros and free their room; the rest keeps its positions', async () => {
  const disk = new MemoryDisk(10);
  const file = await disk.create('/a/x');
  await file.write([Buffer.from('12345678')], 0);
  await file.discardStart!(5);
  assert.equal((await disk.room()).free_bytes, 7);
  assert.equal(await file.size(), 8);
  const bytes = Buffer.alloc(10);
  assert.equal(await file.read(bytes, 10, 0), 8);
  assert.deepEqual(bytes.subarray(0, 8), Buffer.from('\0\0\0\0\x00678'));
  await file.write([Buffer.from('abcdef')], 4);
  await file.write([Buffer.from('gh')], 10);
  assert.equal(await file.read(bytes, 8, 4), 8);
  assert.deepEqual(bytes.subarray(0, 8), Buffer.from('\0bcdefgh'));
  await file.truncate(3);
  await file.write([Buffer.from('z')], 3);
  assert.equal(await file.read(bytes, 10, 0), 4);
  assert.deepEqual(bytes.subarray(0, 4), Buffer.from('\0\0\0z'));
  assert.equal((await disk.room()).free_bytes, 9);
});
