/**
 * A module that a process of a node loads first: it adds the offset of the last message from the test to `Date.now`.
 *
 * Timers and monotonic time go on as before. The process must be started with an IPC channel.
 */
const now = Date.now.bind(Date);
let offset_ms = 0;
Date.now = () => now() + offset_ms;
process.on('message', (wanted: unknown) => {
  offset_ms = Number(wanted);
  process.send?.(offset_ms);
});
// The channel alone must not keep the process alive.
process.channel?.unref();
