/**
 * Preloaded into a server under test: reports the longest turn of its event loop between the orders `watch` and `stop` over IPC.
 *
 * A turn is measured as CPU time of the main thread, so other processes do not affect it. Watching keeps the loop busy, which
 * costs CPU time: rates and turns are measured in separate runs.
 */
import { threadCpu_us } from './clocks.ts';

export interface Turns {
  readonly longest_turn_ms: number;
  readonly turns_above_5_ms: number;
}

let longest_us = 0;
let turns = 0;
let isWatching = false;

function watch(before_us: number): void {
  if (!isWatching) return;
  const took_us = threadCpu_us() - before_us;
  longest_us = Math.max(longest_us, took_us);
  if (took_us > 5000) turns += 1;
  const now_us = threadCpu_us();
  setImmediate(() => watch(now_us));
}

process.on('message', (order: unknown) => {
  if (order !== 'watch' && order !== 'stop') return;
  isWatching = order === 'watch';
  if (isWatching) {
    longest_us = 0;
    turns = 0;
    watch(threadCpu_us());
  }
  process.send!({ longest_turn_ms: longest_us / 1000, turns_above_5_ms: turns } satisfies Turns);
});
// The IPC channel must not keep the server alive.
process.channel?.unref();
