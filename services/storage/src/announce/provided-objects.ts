/**
 * The objects that this node provides to others: all complete and visible ones, or none if reads need a capability.
 *
 * Contract: `describe` omits objects that are absent or damaged, and names those that cannot be read now. `list` states whether the listing is
 * complete: only then may addresses that it lacks be withdrawn.
 * Bound: `READS_AT_ONCE` concurrent reads. Cancellation: by the signals.
 */
import { CompletenessGuard, type ObjectStore } from '@ron/cas';
import { isRonError } from '@ron/kernel';
import { formatAddress, type Address, type AnnounceEntry } from '@ron/proto';
import type { Position } from './object-walk.ts';

/** Few: reads of clients come first. */
const READS_AT_ONCE = 8;
const ID_BYTES = 32;
/** The media types that index accepts. An earlier version of storage kept others. */
const MEDIA_TYPE = /^[\t\x20-\x7e]{1,255}$/;
const MEDIA_TYPE_UNKNOWN = 'application/octet-stream';

export interface Listed {
  readonly addresses: readonly Address[];
  /** The position after the listing; undefined after the last object. */
  readonly next: Position;
  /** No object of the range is missing. */
  readonly isComplete: boolean;
}

export interface Described {
  readonly entries: AnnounceEntry[];
  /** On a volume that is absent or busy: the index keeps them as they are. */
  readonly unreadable: Address[];
}

export interface ProvidedObjects {
  describe(addresses: readonly Address[], signal: AbortSignal): Promise<Described>;
  list(after: Position, count: number): Promise<Listed>;
}

/** `isPrivate`: reads need a capability, so other nodes cannot read and nothing is provided. */
export function providedObjects(store: ObjectStore, isPrivate: boolean): ProvidedObjects {
  const isProvided = (address: Address): boolean => !isPrivate && store.has(address);
  return {
    async describe(addresses, signal) {
      const entries: AnnounceEntry[] = [];
      const unreadable: Address[] = [];
      const provided = addresses.filter(isProvided);
      for (let at = 0; at < provided.length; at += READS_AT_ONCE) {
        const some = provided.slice(at, at + READS_AT_ONCE);
        const found = await Promise.all(some.map((address) => describeOne(store, address, signal)));
        for (const [index, entry] of found.entries()) {
          if (entry === 'unreadable') unreadable.push(some[index]!);
          else if (entry !== undefined) entries.push(entry);
        }
      }
      return { entries, unreadable };
    },
    async list(after, count) {
      const guard = new CompletenessGuard(store.volume);
      const into = Buffer.alloc(count * ID_BYTES);
      const found = await store.volume.listIds('object', after, into);
      const ids = Array.from({ length: found }, (_, at) => into.subarray(at * ID_BYTES, (at + 1) * ID_BYTES));
      const next = found < count ? undefined : Buffer.from(ids.at(-1)!);
      return { addresses: ids.map((id) => formatAddress(id)), next, isComplete: isPrivate || isWhole(guard) };
    },
  };
}

async function describeOne(
  store: ObjectStore,
  address: Address,
  signal: AbortSignal,
): Promise<AnnounceEntry | 'unreadable' | undefined> {
  try {
    const entry = await store.describe(address, signal);
    if (entry === undefined || MEDIA_TYPE.test(entry.media_type)) return entry;
    return { ...entry, media_type: MEDIA_TYPE_UNKNOWN };
  } catch (error) {
    signal.throwIfAborted();
    // The walk after the repair announces a damaged object again.
    if (isRonError(error, 'not_found') || isRonError(error, 'integrity')) return undefined;
    if (isRonError(error)) return 'unreadable';
    throw error;
  }
}

function isWhole(guard: CompletenessGuard): boolean {
  try {
    guard.check();
    return true;
  } catch {
    return false;
  }
}
