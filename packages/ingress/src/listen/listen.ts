/** Waits until a server listens, or fails with the reason. */
import type { Server } from 'node:http';
import { RonError } from '@ron/kernel';
import type { BindTarget } from './bind.ts';

export interface ListenOptions {
  readonly host?: string;
  readonly port?: number;
  readonly path?: string;
  /** An inherited socket; the address is its own. */
  readonly fd?: number;
  readonly backlog: number;
}

export function tcpOptions(target: BindTarget & { kind: 'tcp' }, backlog: number): ListenOptions {
  const { fd, host, port } = target;
  return fd === undefined ? { host, port, backlog } : { fd, backlog };
}

/** `from`: another server, whose listening socket is taken over. Only the backlog of `where` counts then. */
export function listening(server: Server, where: ListenOptions, from?: Server): Promise<void> {
  return new Promise((resolve, reject) => {
    const onError = (error: Error): void =>
      reject(new RonError('internal', `cannot listen: ${error.message}`, { cause: error }));
    server.once('error', onError);
    const onListening = (): void => {
      server.off('error', onError);
      resolve();
    };
    // Without the backlog Node would set that of the taken socket to 511.
    if (from === undefined) server.listen(where, onListening);
    else server.listen(from, where.backlog, onListening);
  });
}
