/** Waits until a server listens, or fails with the reason. */
import type { Server } from 'node:http';
import { RonError } from '@ron/kernel';

export interface ListenOptions {
  readonly host?: string;
  readonly port?: number;
  readonly path?: string;
  readonly backlog: number;
}

/** `where`: an address, or another server whose listening socket is taken over. */
export function listening(server: Server, where: ListenOptions | Server): Promise<void> {
  return new Promise((resolve, reject) => {
    const onError = (error: Error): void =>
      reject(new RonError('internal', `cannot listen: ${error.message}`, { cause: error }));
    server.once('error', onError);
    server.listen(where, () => {
      server.off('error', onError);
      resolve();
    });
  });
}
