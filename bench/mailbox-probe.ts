/**
 * Preloaded into mailbox under test: reports its memory after a garbage collection (`memory`) and the times of its syncs since
 * the last report (`syncs`) over IPC.
 */
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { now_ms } from './clocks.ts';

export interface Memory {
  /** Objects and typed arrays. */
  readonly live_bytes: number;
}

export interface Syncs {
  /** Begin and end of each, in order. */
  readonly times_ms: readonly (readonly [number, number])[];
}

const SYNCS_MAX = 100_000;

let times_ms: [number, number][] = [];
const { fdatasync } = fs;
fs.fdatasync = ((fd: number, done: fs.NoParamCallback) => {
  const begin_ms = now_ms();
  fdatasync(fd, (error) => {
    if (times_ms.length < SYNCS_MAX) times_ms.push([begin_ms, now_ms()]);
    done(error);
  });
}) as typeof fs.fdatasync;
syncBuiltinESMExports();

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

function memory(): Memory {
  collect();
  collect();
  const { heapUsed, external } = process.memoryUsage();
  return { live_bytes: heapUsed + external };
}

process.on('message', (order: unknown) => {
  if (order === 'memory') process.send!(memory());
  if (order !== 'syncs') return;
  process.send!({ times_ms } satisfies Syncs);
  times_ms = [];
});
process.channel?.unref();
