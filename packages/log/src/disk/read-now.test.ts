import assert from 'node:assert/strict';
import { closeSync, mkdtempSync, openSync, readSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import fc from 'fast-check';
import { readNow } from './read-now.ts';

function fileOf(t: TestContext, bytes: Buffer): number {
  const dir = mkdtempSync(join(tmpdir(), 'ron-now-'));
  writeFileSync(join(dir, 'file'), bytes);
  const fd = openSync(join(dir, 'file'), 'r');
  t.after(() => {
    closeSync(fd);
    rmSync(dir, { recursive: true });
  });
  return fd;
}

test('it reads the same bytes as a plain read, even into the middle of a larger buffer, or returns undefined', (t) => {
  const content = Buffer.from(Array.from({ length: 70_000 }, (_, index) => (index * 31) % 251));
  const fd = fileOf(t, content);
  let reads = 0;
  fc.assert(
    fc.property(fc.nat(75_000), fc.nat(75_000), fc.nat(100), (position, length, at) => {
      const around = Buffer.alloc(length + 200, 0xee);
      const into = around.subarray(at, at + length);
      const count = readNow(fd, into, length, position);
      if (count === undefined) return;
      reads += 1;
      const expected = Buffer.alloc(length + 200, 0xee);
      assert.equal(count, readSync(fd, expected, at, length, position));
      assert.ok(around.equals(expected), 'no other byte is changed');
    }),
  );
  // A file that was just written is in memory; only a system without the call never answers.
  const { header } = process.report.getReport() as { header: { glibcVersionRuntime?: string } };
  assert.equal(reads > 0, process.platform === 'linux' && header.glibcVersionRuntime !== undefined);
});

test('a descriptor that cannot be read returns undefined', () => {
  assert.equal(readNow(99_999, Buffer.alloc(4), 4, 0), undefined);
});
