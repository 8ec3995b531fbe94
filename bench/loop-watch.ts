/**
 * Preloaded into a server under test: reports the longest turn of its event loop over IPC.
 *
 * A turn is measured by the CPU time of the main thread, so other processes on the machine are not in it. Watching keeps the
 * loop turning, which costs CPU time itself: rates and turns are therefore measured in separate runs.
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
// The channel alone must not keep the server from ending.
process.channel?.unref();
