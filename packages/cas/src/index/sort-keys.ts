/**
 * Sorts the entries of a memtable without holding the event loop.
 *
 * Contract: in order of the keys, which are latin1 texts of one length. The entries must not change meanwhile.
 * Bound: slices of `SLICE_ENTRIES`; ids are hashes, so groups by two bytes are small, and a large one is divided again.
 */
import { sched } from '@ron/kernel';

const SLICE_ENTRIES = 1024;
/** Sorted in one go: a quarter of a millisecond. */
const GROUP_MAX = 512;

type Entry<V> = readonly [key: string, value: V];

export async function sortEntries<V>(entries: ReadonlyMap<string, V>): Promise<Entry<V>[]> {
  const sorted: Entry<V>[] = [];
  await sortInto(entries, 0, sorted);
  return sorted;
}

async function sortInto<V>(entries: Iterable<Entry<V>>, depth: number, into: Entry<V>[]): Promise<void> {
  const groups = new Map<number, Entry<V>[]>();
  let count = 0;
  for (const entry of entries) {
    const prefix = (entry[0].charCodeAt(depth) << 8) | entry[0].charCodeAt(depth + 1);
    const group = groups.get(prefix);
    if (group === undefined) groups.set(prefix, [entry]);
    else group.push(entry);
    // [storage I-7] The event loop gets a turn after each slice.
    if (++count % SLICE_ENTRIES === 0) await sched.pause('index.sort');
  }
  let slice = 0;
  for (const prefix of [...groups.keys()].toSorted((a, b) => a - b)) {
    const group = groups.get(prefix)!;
    const isDivided = group.length > GROUP_MAX && depth + 2 < group[0]![0].length;
    if (isDivided) await sortInto(group, depth + 2, into);
    else for (const entry of group.toSorted(byKey)) into.push(entry);
    slice += isDivided ? 0 : group.length;
    if (slice < SLICE_ENTRIES) continue;
    slice = 0;
    await sched.pause('index.sort');
  }
}

const byKey = (a: Entry<unknown>, b: Entry<unknown>): number => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0);
