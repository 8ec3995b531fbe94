/** The thread of the database, which dies in the first three batches that publish the label `crash`. For tests. */
import { readdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { BatchResult, DatabaseInit, ThreadCall } from '../../src/store/thread/calls.ts';
import { runBatch as run } from '../../src/store/thread/db-thread.ts';

export { close, open, rebuild } from '../../src/store/thread/db-thread.ts';

const CRASHES = 3;
const MARK = 'crashed-';

export function runBatch(init: DatabaseInit, calls: readonly ThreadCall[]): BatchResult {
  const isMeant = calls.some(({ fn, args }) => fn === 'apply' && JSON.stringify(args[0]).includes('"crash"'));
  if (isMeant) crash(dirname(init.path!));
  return run(init, calls);
}

function crash(dir: string): void {
  const crashed = readdirSync(dir).filter((name) => name.startsWith(MARK)).length;
  if (crashed >= CRASHES) return;
  writeFileSync(join(dir, `${MARK}${crashed}`), '');
  process.exit(1);
}
