/**
 * Fetches objects from the storage of this node.
 *
 * Contract: every byte is proven against the address before it is written. An object that storage does not have is `absent`,
 * and not remembered: it may be stored in the next moment.
 * Bound: `fill.object_bytes_max`, checked before the first byte. Cancellation: by the deadline.
 */
import type { StorageClient } from '@ron/client';
import { isRonError, RonError, type Deadline } from '@ron/kernel';
import type { Address } from '@ron/proto';
import type { AssetKey } from '../../assets/asset-key.ts';
import { writeBody, type BodySink, type Fetched } from '../fetched.ts';

export const OBJECT_PREFIX = 'o/';

export interface StorageObjectsInit {
  /** A client with the capability of this moment; undefined without a storage. */
  readonly storage: (() => Promise<StorageClient>) | undefined;
  readonly cache: BodySink;
  /** `fill.object_bytes_max`, read at each fetch. */
  readonly bytes_max: () => number;
}

export class StorageObjects {
  readonly #init: StorageObjectsInit;

  constructor(init: StorageObjectsInit) {
    this.#init = init;
  }

  async fetch(key: AssetKey, deadline: Deadline): Promise<Fetched> {
    const { storage } = this.#init;
    if (storage === undefined) return { kind: 'absent', isKept: false };
    const address = key.slice(OBJECT_PREFIX.length) as Address;
    try {
      return await deadline.run(async (signal) => await this.#read(await storage(), key, address, signal));
    } catch (error) {
      if (isRonError(error, 'not_found')) return { kind: 'absent', isKept: false };
      throw storageError(error);
    }
  }

  async #read(storage: StorageClient, key: AssetKey, address: Address, signal: AbortSignal): Promise<Fetched> {
    const { cache, bytes_max } = this.#init;
    const { size, media_type } = await storage.stat(address, { signal });
    if (size > bytes_max())
      throw new RonError('payload_too_large', `the object has more than ${bytes_max()} bytes`, { op: 'fill_answer' });
    const body = await writeBody(cache.writer(bytes_max()), storage.get(address, { signal }), media_type, signal);
    const meta = {
      key,
      address,
      size: body.size,
      media_type,
      etag: undefined,
      freshness: undefined,
      provenance: undefined,
      log_index: undefined,
    };
    return { kind: 'asset', how: 'fetched', meta, body, isStorable: true };
  }
}

const KEPT = new Set(['timeout', 'payload_too_large', 'busy', 'canceled', 'draining']);

/** The error of storage, as the clients of edge get it. */
export function storageError(error: unknown): unknown {
  if (!isRonError(error) || KEPT.has(error.code)) return error;
  const code = error.code === 'unreachable' || error.code === 'not_ready' ? 'not_ready' : 'bad_gateway';
  return new RonError(code, `storage failed: ${error.message}`, { op: 'fill_answer', cause: error });
}
