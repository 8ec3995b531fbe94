/**
 * Loaded into every service before its own code: when the `ron up` that started it is gone, even by `kill -9`, it drains
 * and ends too, so that nobody is left behind holding ports and data.
 */
import { Socket } from 'node:net';
import { isMainThread } from 'node:worker_threads';

/** A pipe whose other end only `ron up` holds. */
const PARENT_PIPE_FD = 3;

// Threads of the service load this as well, and the pipe is not theirs.
if (isMainThread) {
  const pipe = new Socket({ fd: PARENT_PIPE_FD, readable: true, writable: false });
  pipe.on('error', () => undefined);
  pipe.on('close', () => process.kill(process.pid, 'SIGTERM'));
  pipe.resume();
  pipe.unref();
}
