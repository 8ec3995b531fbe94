/**
 * Preloaded into a server under test: reports the longest turn of its event loop over IPC.
 *
 * A turn is measured as CPU time of the main thread, so other processes do not affect it. Watching keeps the loop busy, which
 * costs CPU time: rates and turns are measured in separate runs.
 */
export type WatchOrder = 'watch' | 'stop';

let longest_us = 0;
let turns = 0;
let isWatching = false;

function watch(before: NodeJS.CpuUsage): void {
  if (!isWatching) return;
  const { user, system } = process.threadCpuUsage(before);
  longest_us = Math.max(longest_us, user + system);
  if (user + system > 5000) turns += 1;
  const now = process.threadCpuUsage();
  setImmediate(() => watch(now));
}

process.on('message', (order: WatchOrder) => {
  isWatching = order === 'watch';
  if (isWatching) {
    longest_us = 0;
    turns = 0;
    watch(process.threadCpuUsage());
  }
  process.send!({ longest_turn_ms: longest_us / 1000, turns_above_5_ms: turns });
});
// The IPC channel must not keep the server alive.
process.channel?.unref();
