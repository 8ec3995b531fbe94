/**
 * The objects that this node provides to others: all complete and visible ones, or none if reads need a capability.
 *
 * Contract: `describe` omits objects that are absent, damaged or cannot be read now. `list` states whether the listing is
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

export interface Listed {
  readonly addresses: readonly Address[];
  /** The position after the listing; undefined after the last object. */
  readonly next: Position;
  /** No object of the range is missing. */
  readonly isComplete: boolean;
}

export interface ProvidedObjects {
  describe(addresses: readonly Address[], signal: AbortSignal): Promise<AnnounceEntry[]>;
  list(after: Position, count: number): Promise<Listed>;
}

/** `isPrivate`: reads need a capability, so other nodes cannot read and nothing is provided. */
export function providedObjects(store: ObjectStore, isPrivate: boolean): ProvidedObjects {
  const isProvided = (address: Address): boolean => !isPrivate && store.has(address);
  return {
    async describe(addresses, signal) {
      const entries: AnnounceEntry[] = [];
      const provided = addresses.filter(isProvided);
      for (let at = 0; at < provided.length; at += READS_AT_ONCE) {
        const some = provided.slice(at, at + READS_AT_ONCE).map((address) => describeOne(store, address, signal));
        entries.push(...(await Promise.all(some)).filter((entry) => entry !== undefined));
      }
      return entries;
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
): Promise<AnnounceEntry | undefined> {
  try {
    return await store.describe(address, signal);
  } catch (error) {
    signal.throwIfAborted();
    // Damaged, or on a volume that is absent: the walk after the repair or the return of the volume announces it.
    if (isRonError(error)) return undefined;
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
