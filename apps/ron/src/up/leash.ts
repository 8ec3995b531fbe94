/**
 * Loaded into every service before its own code: when the `ron up` that started it is gone, even by `kill -9`, it drains
 * and ends too, so that nobody is left behind holding ports and data.
 */
import { Socket } from 'node:net';
import { isMainThread } from 'node:worker_threads';

/** A pipe whose other end only `ron up` holds. */
const LEASH_FD = 3;

// Threads of the service load this as well, and the pipe is not theirs.
if (isMainThread) {
  const leash = new Socket({ fd: LEASH_FD, readable: true, writable: false });
  leash.on('error', () => undefined);
  leash.on('close', () => process.kill(process.pid, 'SIGTERM'));
  leash.resume();
  leash.unref();
}
