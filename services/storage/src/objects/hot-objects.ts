/**
 * Objects in memory with their answers prepared, by the request target that asks for them.
 *
 * Bound: `bytes_max`; 0 keeps nothing. Overflow: the least used go. The bytes of an object never change; one that was
 * removed, got another media type, or whose stored bytes turned out damaged, is dropped by `forget`.
 */
import { Cache } from '@ron/cache';
import type { ObjectStore, StoredObject } from '@ron/cas';
import type { FastEntry } from '@ron/ingress';
import { isAddress, type Address } from '@ron/proto';
import { fastEntry, fastEntryOf } from './object-bytes.ts';

/** Larger ones are read chunk by chunk, from the same memory. */
const OBJECT_BYTES_MAX = 1024 * 1024;
/** What an entry costs besides its bytes: prepared headers and the maps around it. */
const ENTRY_OVERHEAD_BYTES = 2048;

export class HotObjects {
  readonly #entries: Cache<FastEntry>;
  /** Objects that were not kept here but could be read on the spot. */
  opened_total = 0;

  constructor(bytes_max: number) {
    this.#entries = new Cache({ bytes_max });
  }

  lookup(target: string): FastEntry | undefined {
    return this.#entries.get(target);
  }

  /** Small objects that the operating system has in memory are as good as hot: they are read and checked on the spot. */
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

/** Small ones are kept as text as well. */
const costOf = ({ source, body_text }: FastEntry): number =>
  source.size + (body_text?.length ?? 0) + ENTRY_OVERHEAD_BYTES;
