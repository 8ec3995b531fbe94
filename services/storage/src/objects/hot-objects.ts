/**
 * Prepared responses of objects in memory, by request target.
 *
 * Contract: the bytes of an object never change; `forget` drops an object that was removed, retyped or found damaged.
 * Bound: `bytes_max`; 0 disables it. Overflow: the least used entries are evicted.
 */
import { Cache } from '@ron/cache';
import type { ObjectStore, StoredObject } from '@ron/cas';
import type { FastEntry } from '@ron/ingress';
import { isAddress, type Address } from '@ron/proto';
import { fastEntry, fastEntryOf } from './object-bytes.ts';

/** Larger objects are served chunk by chunk from the cache of chunks. */
const OBJECT_BYTES_MAX = 1024 * 1024;
/** The memory of an entry besides its bytes: prepared headers and map entries. */
const ENTRY_OVERHEAD_BYTES = 2048;

export class HotObjects {
  readonly #entries: Cache<FastEntry>;
  /** Objects that were not cached and were read from the page cache. */
  opened_total = 0;

  constructor(bytes_max: number) {
    this.#entries = new Cache({ bytes_max });
  }

  lookup(target: string): FastEntry | undefined {
    return this.#entries.get(target);
  }

  /** Reads and verifies a small object if it is in the page cache. */
  openNow(target: string, store: ObjectStore): FastEntry | undefined {
    const address = this.#entries.bytes_max === 0 ? undefined : addressIn(target);
    const object = address === undefined ? undefined : store.peekNow(address);
    if (object === undefined) return undefined;
    this.opened_total += 1;
    const entry = fastEntryOf(address!, object);
    this.#entries.offer(target, costOf(entry), () => entry);
    return entry;
  }

  remember(object: StoredObject): void {
    const target = targetOf(object.address);
    if (object.size > OBJECT_BYTES_MAX || this.#entries.bytes_max === 0 || this.#entries.has(target)) return;
    const entry = fastEntry(object);
    if (entry !== undefined) this.#entries.set(target, entry, costOf(entry));
  }

  forget(address: Address): void {
    this.#entries.delete(targetOf(address));
  }

  get hits_total(): number {
    return this.#entries.hits_total;
  }

  get used_bytes(): number {
    return this.#entries.bytes;
  }
}

const PREFIX = '/o/';
const targetOf = (address: Address): string => `${PREFIX}${address}`;

function addressIn(target: string): Address | undefined {
  if (!target.startsWith(PREFIX)) return undefined;
  const address = target.slice(PREFIX.length);
  return isAddress(address) ? address : undefined;
}

/** Small objects are also kept as text. */
const costOf = ({ source, text_bytes }: FastEntry): number => source.size + text_bytes + ENTRY_OVERHEAD_BYTES;
