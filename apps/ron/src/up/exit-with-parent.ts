/**
 * Preloaded into every service: when its `ron up` exits, even by `kill -9`, the service drains and exits too, so that no
 * orphan keeps ports and data directories.
 */
import { Socket } from 'node:net';
import { isMainThread } from 'node:worker_threads';

/** A pipe whose other end is held by `ron up` alone. */
const PARENT_PIPE_FD = 3;

// Until the service has its own handler, a reload must not end it.
if (isMainThread) process.on('SIGHUP', () => undefined);

// Worker threads preload this module too, but the main thread owns the pipe.
if (isMainThread) {
  const pipe = new Socket({ fd: PARENT_PIPE_FD, readable: true, writable: false });
  pipe.on('error', () => undefined);
  pipe.on('close', () => process.kill(process.pid, 'SIGTERM'));
  pipe.resume();
  pipe.unref();
}
