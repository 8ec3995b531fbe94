import assert from 'node:assert/strict';
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { tempDirFor } from '@ron/testkit';
import { LogFile } from './log-file.ts';

test('the log and its rotated file are bounded, and no line is lost between them', (t) => {
  const dir = tempDirFor(t);
  const path = join(dir, 'logs/storage.log');
  const lines = Array.from({ length: 100 }, (_, index) => `line ${String(index).padStart(3, '0')}\n`);
  {
    using log = new LogFile({ path, bytes_max: 90 });
    for (const line of lines.slice(0, 50)) log.write(Buffer.from(line));
  }
  using log = new LogFile({ path, bytes_max: 90 });
  for (const line of lines.slice(50)) log.write(Buffer.from(line));
  const kept = readFileSync(`${path}.1`, 'utf8') + readFileSync(path, 'utf8');
  assert.ok(statSync(path).size <= 90 && statSync(`${path}.1`).size <= 90);
  assert.ok(lines.join('').endsWith(kept) && kept.length >= 90);
  assert.equal(statSync(path).mode & 0o777, 0o600);
});

test('the tail is readable and contains only the last run', () => {
  using log = new LogFile({ path: undefined });
  log.write(Buffer.from('{"level":"info","msg":"of another run"}\n'));
  log.startRun();
  log.write(Buffer.from('{"level":"fatal","msg":"failed to start","err":{"message":"no room"}}\nplain'));
  log.write(Buffer.from(' text\n'));
  assert.equal(log.tail, 'fatal: failed to start: no room\nplain text');
  log.write(Buffer.alloc(100_000, 'x'));
  assert.ok(log.tail.length < 20_000);
});
