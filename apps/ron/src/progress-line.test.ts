import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { installSched, realSched } from '@ron/kernel';
import { humanDuration, humanSize } from './format.ts';
import type { Io } from './io.ts';
import { ProgressLine } from './progress-line.ts';

const MIB = 1024 * 1024;

/** A manual clock, and an `Io` that records its output. */
function stage(
  t: TestContext,
  isTTY: boolean,
  json = false,
): { io: Io; written: string[]; pass: (ms: number) => void } {
  let now_ms = 0;
  const before = installSched({ ...realSched, now_ms: () => now_ms });
  t.after(() => void installSched(before));
  const written: string[] = [];
  const io = {
    json,
    stderr: { isTTY, columns: 60, write: (text: string) => written.push(text) },
    note: (text: string) => written.push(`${text}\n`),
  };
  return { io: io as unknown as Io, written, pass: (ms) => (now_ms += ms) };
}

test('sizes and durations are formatted with about three digits', () => {
  assert.deepEqual([0, 1023, 1024, 1536, 10 * MIB, 5 * 1024 ** 4].map(humanSize), [
    '0 B',
    '1023 B',
    '1.0 KiB',
    '1.5 KiB',
    '10 MiB',
    '5.0 TiB',
  ]);
  assert.deepEqual([0, 1540, 59_400, 61_000, 3_700_000].map(humanDuration), [
    '0.0 s',
    '1.5 s',
    '59 s',
    '1 min 1 s',
    '1 h 1 min',
  ]);
});

test('a transfer of less than a second shows nothing', (t) => {
  for (const isTTY of [true, false]) {
    const { io, written, pass } = stage(t, isTTY);
    {
      using line = new ProgressLine('put x', io);
      for (let part = 1; part <= 10; part++) {
        pass(90);
        line.update({ done_bytes: part * MIB, total_bytes: 10 * MIB });
      }
    }
    assert.deepEqual(written, []);
  }
});

test('a terminal gets one line with rate and time left, redrawn at most ten times a second and erased at the end', (t) => {
  const { io, written, pass } = stage(t, true);
  {
    using line = new ProgressLine('put x', io);
    for (let part = 0; part <= 200; part++) {
      line.update({ done_bytes: part * MIB, total_bytes: 400 * MIB });
      pass(10);
    }
  }
  assert.ok(written.length >= 9 && written.length <= 12, `${written.length} redraws in one second`);
  assert.ok(written.every((text) => text.startsWith('\r\u001b[K') && !text.includes('\n')));
  assert.equal(written.at(-2), '\r\u001b[K[============            ] put x: 50 % of 400 MiB, 100 MiB/');
  assert.equal(written.at(-1), '\r\u001b[K', 'the line is cleared');
});

test('without a terminal there is one line for each 10 %, and none with --json', (t) => {
  const { io, written, pass } = stage(t, false);
  const line = new ProgressLine('get y', io);
  for (let part = 0; part <= 100; part++) {
    line.update({ done_bytes: part * MIB, total_bytes: 100 * MIB });
    pass(100);
  }
  assert.equal(written.length, 10);
  assert.equal(written[4], 'get y: 50 % of 100 MiB, 10 MiB/s, 5.0 s left\n');
  const silent = stage(t, false, true);
  const nothing = new ProgressLine('get y', silent.io);
  silent.pass(5000);
  nothing.update({ done_bytes: 50, total_bytes: 100 });
  assert.deepEqual(silent.written, []);
});

test('a transfer that is complete at its first update shows nothing', (t) => {
  const { io, written, pass } = stage(t, false);
  const line = new ProgressLine('get w', io);
  pass(5000);
  line.update({ done_bytes: 11, total_bytes: 11 });
  assert.deepEqual(written, []);
});

test('bytes of an earlier attempt do not count towards the rate', (t) => {
  const { io, written, pass } = stage(t, false);
  const line = new ProgressLine('get z', io);
  line.update({ done_bytes: 50 * MIB, total_bytes: 100 * MIB });
  pass(10_000);
  line.update({ done_bytes: 60 * MIB, total_bytes: 100 * MIB });
  assert.deepEqual(written, ['get z: 60 % of 100 MiB, 1.0 MiB/s, 40 s left\n']);
});
