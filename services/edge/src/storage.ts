/** The storage of this node, for objects and packs. */
import { narrowed } from '@ron/auth/narrowed';
import { StorageClient, type AuthorizedRequest } from '@ron/client';
import { reach, reachPrivately } from '@ron/client/node';
import { readSecretFile } from '@ron/log';
import type { EdgeConfig } from './config.ts';

/** Gives a client with the capability of this moment: `ron up` renews the file. */
export type OpenStorage = () => Promise<StorageClient>;

/** Undefined without `edge.storage_url`. Throws `validation` for a URL at which another user could receive the capability. */
export function storageOf({ edge }: Pick<EdgeConfig, 'edge'>): OpenStorage | undefined {
  const { storage_url: url, storage_capability_file: file } = edge;
  if (url === undefined) return undefined;
  if (file === undefined) {
    const client = new StorageClient(reach(url));
    return () => Promise.resolve(client);
  }
  const way = reachPrivately(url);
  return async () => {
    const token = await readSecretFile(file);
    const authorize = ({ body }: AuthorizedRequest): string => narrowed(token, { audience: 'storage', body });
    return new StorageClient({ ...way, authorize });
  };
}
