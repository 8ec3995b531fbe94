/**
 * The database thread with faults. A file beside the database orders one:
 * `hang` is a pipe: a batch waits in a system call until the test writes to it; `crash-before` and `crash-after` end the thread
 * once, before and after the batch was committed. A cursor with the name `crash` ends a thread with a database in memory.
 */
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import * as real from '../../src/store/thread/db-thread.ts';
import type { BatchResult, DatabaseInit, ThreadCall } from '../../src/store/thread/calls.ts';

export const { open, rebuild, close } = real;

/** A file, because threads share no variables. */
const MARKER = join(tmpdir(), `ron-test-crashed-${process.pid}`);
function hasCrashed(): boolean {
  if (existsSync(MARKER)) {
    rmSync(MARKER);
    return true;
  }
  writeFileSync(MARKER, '');
  return false;
}

export function runBatch(init: DatabaseInit, calls: readonly ThreadCall[]): BatchResult {
  const isOrdered = (fault: string): boolean => init.path !== undefined && existsSync(join(dirname(init.path), fault));
  const crashIf = (fault: string): void => {
    if (!isOrdered(fault)) return;
    rmSync(join(dirname(init.path!), fault));
    process.exit(1);
  };
  if (isOrdered('hang')) readFileSync(join(dirname(init.path!), 'hang'));
  crashIf('crash-before');
  // Once: the batch is sent again.
  if (calls.some(({ fn, args }) => fn === 'saveCursor' && args[0] === 'crash') && !hasCrashed()) process.exit(1);
  const result = real.runBatch(init, calls);
  crashIf('crash-after');
  return result;
}
