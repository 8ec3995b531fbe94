/** A mark is read as it was written, or not at all; a power failure never brings back a content before the last sync. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CrashFileSystem } from '../testing/crash-file-system.ts';
import { MarkFile, readMark, type MarkFormat } from './mark-file.ts';

const FORMAT: MarkFormat = { magic: 'TEST', content_bytes: 1200 };
const PATH = '/dir/mark';

const contentOf = (n: number): Buffer => Buffer.alloc(FORMAT.content_bytes, n);

/** The first byte of the content; 'damaged', or undefined if there is none. */
async function read(disk: CrashFileSystem): Promise<number | 'damaged' | undefined> {
  try {
    return (await readMark(disk, PATH, FORMAT))?.[0];
  } catch {
    return 'damaged';
  }
}

test('the last content is read; a missing file states nothing', async () => {
  const disk = new CrashFileSystem();
  assert.equal(await read(disk), undefined);
  const mark = new MarkFile(disk, PATH, FORMAT);
  for (const n of [1, 2, 3]) {
    await mark.write(contentOf(n));
    assert.deepEqual(await readMark(disk, PATH, FORMAT), contentOf(n));
  }
  await mark.close();
  await new MarkFile(disk, PATH, FORMAT).write(contentOf(4));
  assert.equal(await read(disk), 4);
});

test('a changed bit, a cut file and a longer one are damaged, and the next write repairs them', async () => {
  const change = (at: number) => (bytes: Uint8Array) => {
    bytes[at]! ^= 1;
    return bytes;
  };
  for (const damage of [
    change(0),
    change(700),
    change(1207),
    (bytes: Uint8Array) => bytes.subarray(0, 1000),
    (bytes: Uint8Array) => Buffer.concat([bytes, Buffer.alloc(1)]),
  ]) {
    const disk = new CrashFileSystem();
    await new MarkFile(disk, PATH, FORMAT).write(contentOf(1));
    disk.damage(PATH, damage);
    assert.equal(await read(disk), 'damaged');
    await new MarkFile(disk, PATH, FORMAT).write(contentOf(2));
    assert.equal(await read(disk), 2);
  }
});

test('no power failure brings back a content that is older than the last sync or a removal', async () => {
  const disk = new CrashFileSystem();
  const mark = new MarkFile(disk, PATH, FORMAT);
  const synced: { readonly at: number; readonly least: number }[] = [];
  for (const n of [1, 2, 3, 4]) {
    await mark.write(contentOf(n));
    if (n % 2 === 0) await mark.sync();
    if (n % 2 === 0) synced.push({ at: disk.operations, least: n });
  }
  await mark.remove();
  const removed = disk.operations;
  let images = 0;
  for (let point = 0; point <= removed; point++)
    for (const image of disk.imagesAt(point, 1000, Math.random)) {
      images += 1;
      const found = await read(new CrashFileSystem(image));
      const least = synced.findLast(({ at }) => at <= point)?.least ?? 0;
      if (typeof found === 'number') assert.ok(found >= least && point < removed, `${found} after ${point} operations`);
    }
  assert.ok(images > 40, `only ${images} disks were tried`);
});

test('a write that failed is tried again by the next one', async () => {
  let failing = true;
  const before = (operation: string): void => {
    if (failing && operation === 'syncDir') throw new Error('EIO');
  };
  const disk = new CrashFileSystem(new Map(), { before });
  const mark = new MarkFile(disk, PATH, FORMAT);
  await assert.rejects(mark.write(contentOf(1)));
  failing = false;
  await mark.write(contentOf(2));
  assert.equal(await read(disk), 2);
});
