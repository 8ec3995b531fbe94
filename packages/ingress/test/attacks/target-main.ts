/** Process entry of the example service that reports the memory in use after a garbage collection when its parent asks. */
process.on('message', () => {
  // The second collection frees the objects that finalizers of the first one released.
  for (let run = 0; run < 2; run += 1) globalThis.gc!();
  process.send!(process.memoryUsage());
});
// The channel does not keep a process alive that is to stop.
process.channel?.unref();

await import('../example/main.ts');
