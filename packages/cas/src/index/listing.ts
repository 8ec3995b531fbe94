/**
 * Listings of a volume, made of pages of its index.
 *
 * Contract: in order of ids; entries that have ended are left out. Bound: one page of the index at a time.
 */
import { ID_BYTES } from '@ron/log';
import { isEnd } from '../volume/record-types.ts';
import type { Held, Kind } from '../volume/volume.ts';
import type { Place } from './entry.ts';
import type { PlaceIndex } from './place-index.ts';

const PAGE_ENTRIES = 512;

export const heldAt = (id: Uint8Array, { type, payload_bytes, time_s }: Place): Held => ({
  id,
  type,
  payload_bytes,
  put_s: time_s,
});

/** At most `count` entries after an id; fewer only at the end. */
export async function listHeld(
  index: PlaceIndex,
  kind: Kind,
  after: Uint8Array | undefined,
  count: number,
): Promise<Held[]> {
  const held: Held[] = [];
  let last = after;
  while (held.length < count) {
    const page = await index.page(kind, last, Math.min(PAGE_ENTRIES, count - held.length));
    for (const [id, place] of page.entries) {
      if (!isEnd(place.type) && held.length < count) held.push(heldAt(Uint8Array.from(id), place));
    }
    if (page.last === undefined) break;
    last = page.last;
  }
  return held;
}

/** Only ids, without those that are known to be damaged, as many as fit `into`. Returns their number. */
export async function listIds(
  index: PlaceIndex,
  kind: Kind,
  after: Uint8Array | undefined,
  into: Buffer,
): Promise<number> {
  const count = Math.floor(into.length / ID_BYTES);
  let listed = 0;
  let last = after;
  while (listed < count) {
    const page = await index.page(kind, last, Math.min(PAGE_ENTRIES, count - listed));
    for (const [id, { type, isDamaged }] of page.entries) {
      if (isEnd(type) || isDamaged === true || listed === count) continue;
      into.set(id, listed * ID_BYTES);
      listed += 1;
    }
    if (page.last === undefined) break;
    last = page.last;
  }
  return listed;
}
