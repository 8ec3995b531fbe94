/**
 * A descriptor for writing to the same file as another one, on which a write never blocks.
 *
 * Contract: a write to a pipe, terminal or socket whose reader is stalled fails with EAGAIN. Pipes and terminals are opened
 * anew, so that other processes which share the descriptor do not see the change; a socket cannot be, and becomes
 * non-blocking for every process that shares it. A regular file is used as it is, as its writes do not wait for a reader.
 * Bound: one descriptor, which `close` frees. If none of this works the descriptor is used as it is.
 *
 *   const out = nonBlockingFd(2);
 *   writeSync(out.fd, bytes);                         // may throw EAGAIN
 */
// oxlint-disable-next-line ron/no-blocking-calls -- opens a descriptor of this process once
import { closeSync, constants, fstatSync, openSync } from 'node:fs';

export interface NonBlockingFd {
  readonly fd: number;
  close(): void;
}

export function nonBlockingFd(fd: number): NonBlockingFd {
  const asIs: NonBlockingFd = { fd, close: () => undefined };
  try {
    const file = fstatSync(fd);
    if (file.isFIFO() || file.isCharacterDevice()) return reopened(fd);
    return file.isSocket() ? switched(fd) : asIs;
  } catch {
    return asIs;
  }
}

function reopened(shared: number): NonBlockingFd {
  const fd = openSync(`/proc/self/fd/${shared}`, constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  return { fd, close: () => closeSync(fd) };
}

/** Opening a socket switches its descriptor; it is not used for anything else. Loaded here, as few processes need it. */
function switched(fd: number): NonBlockingFd {
  const { Socket } = process.getBuiltinModule('node:net');
  const socket = new Socket({ fd, readable: false, writable: true });
  socket.unref();
  // Without a listener an error would end the process; writes report their own errors.
  socket.on('error', () => undefined);
  return { fd, close: () => undefined };
}
