/** A disk that does not answer: its callers fail in time, and it occupies no more than its share of threads. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DiskGate, gatedFileSystem } from './disk-gate.ts';
import { CrashFileSystem } from '../testing/index.ts';

const codeOf = (code: string) => (error: NodeJS.ErrnoException) => error.code === code;
const forever = (): Promise<never> => new Promise(() => undefined);
const turn = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));

test('concurrent calls are limited; further ones run in order', async () => {
  const gate = new DiskGate({ calls_max: 2, late_ms: 1000 });
  const begun: number[] = [];
  const ends: (() => void)[] = [];
  const calls = [0, 1, 2, 3].map((key) =>
    gate.run(() => {
      begun.push(key);
      return new Promise<number>((resolve) => void ends.push(() => resolve(key)));
    }),
  );
  assert.deepEqual([begun, gate.calls, gate.waiting], [[0, 1], 2, 2]);
  ends[1]!();
  await turn();
  assert.deepEqual([begun, gate.calls, gate.waiting], [[0, 1, 2], 2, 1]);
  ends[0]!();
  await turn();
  for (const end of ends) end();
  assert.deepEqual(await Promise.all(calls), [0, 1, 2, 3]);
  assert.equal(gate.calls, 0);
});

test('a call that does not end fails in time, and so do waiting calls; later calls fail at once until it has ended', async () => {
  const gate = new DiskGate({ calls_max: 1, late_ms: 50 });
  const hung = Promise.withResolvers<void>();
  const first = gate.run(() => hung.promise);
  const second = gate.run(() => assert.fail('it has no thread'));
  await assert.rejects(first, codeOf('ETIMEDOUT'));
  await assert.rejects(second, codeOf('ETIMEDOUT'));
  // [storage I-4] [index I-4]
  assert.ok(gate.isStuck);
  await assert.rejects(
    gate.run(() => assert.fail('it would hang too')),
    codeOf('ETIMEDOUT'),
  );
  hung.resolve();
  await turn();
  assert.equal(await gate.run(() => Promise.resolve(7)), 7);
});

test('sequential calls are never late, regardless of their number', async () => {
  const gate = new DiskGate({ calls_max: 1, late_ms: 300 });
  const sleep = (): Promise<void> => new Promise((resolve) => void setTimeout(resolve, 20));
  for (let index = 0; index < 25; index++) await gate.run(sleep);
});

test('calls beyond the queue limit are refused', async () => {
  const gate = new DiskGate({ calls_max: 1, late_ms: 60_000 });
  const calls = Array.from({ length: 4097 }, () => gate.run(forever).catch(() => undefined));
  assert.equal(calls.length, 4097);
  await assert.rejects(gate.run(forever), codeOf('EBUSY'));
});

test('a file with a call in progress is closed only after that call', async () => {
  const disk = new CrashFileSystem();
  const gate = new DiskGate({ calls_max: 4, late_ms: 30 });
  const hung = Promise.withResolvers<void>();
  let isClosed = false;
  const fs = gatedFileSystem(
    Object.assign(Object.create(disk) as CrashFileSystem, {
      create: async (path: string) => {
        const file = await disk.create(path);
        const sync = (): Promise<void> => hung.promise;
        const close = (): Promise<void> => {
          isClosed = true;
          return file.close();
        };
        return Object.assign(Object.create(file) as typeof file, { sync, close });
      },
    }),
    gate,
  );
  const file = await fs.create('/x');
  await assert.rejects(file.sync(), codeOf('ETIMEDOUT'));
  await file.close();
  assert.ok(!isClosed);
  hung.resolve();
  await turn();
  assert.ok(isClosed);
});
