/**
 * Surveys stripes before space is reclaimed on a volume: which shards must stay, and which copies may be removed.
 *
 * Contract: a copy may be removed only if its stripe is intact (every shard durable in a place of its own, and the stripe
 * recorded on every volume with its parity) and no volume was added or lost since. In doubt a copy stays. Stripes that
 * protect nothing any more are dissolved. Bound: `HOME_BYTES_MAX` for the shards of each volume, and 12 to 24 bytes for each
 * copy that may be removed.
 * Cancellation: by the signal, between two stripes.
 */
import { IdFilter, IdSet, RecordType, type ReclaimInit } from '@ron/cas';
import type { Member } from '../membership/member.ts';
import { isWhole } from './stripe-health.ts';
import type { FoundStripe } from './stripes.ts';
import type { VolumeSet } from '../set/volume-set.ts';

/** Memory for the shards of one volume. */
const HOME_BYTES_MAX = 128 * 1024 * 1024;
/** The cost of reading about one stripe, in bytes, when the work is paced. */
const LINE_COST_BYTES = 512;

export interface StripeSurvey {
  /** A shard of a needed stripe, in its place. */
  isHome(member: Member, id: Uint8Array): boolean;
  /** A copy of a content that its stripe protects. */
  isReleased(member: Member, id: Uint8Array): boolean;
}

export async function surveyStripes(set: VolumeSet, init: ReclaimInit): Promise<StripeSurvey> {
  const { changes_total } = set.lifecycle;
  const ids_max = 2 ** 26;
  // A false positive of the filter keeps a shard until a later run. The number of shards is not bounded.
  const homes = new Map<string, IdFilter>();
  const ids = Math.ceil((2 * set.stats().contents) / set.members.length);
  const released = new Map<string, IdSet>();
  let hasUnread = false;
  const addHome = (volume_id: string, id: Uint8Array): void => {
    if (!homes.has(volume_id)) homes.set(volume_id, new IdFilter({ ids, bytes_max: HOME_BYTES_MAX }));
    homes.get(volume_id)!.add(id);
  };
  const release = (volume_id: string, id: Uint8Array): void => {
    if (!released.has(volume_id)) released.set(volume_id, new IdSet({ ids_max }));
    released.get(volume_id)!.add(id);
  };
  await set.stripes.walk(init.signal, async ({ id: stripe_id, layout }) => {
    await init.pace(LINE_COST_BYTES);
    if (layout === undefined) {
      hasUnread = true;
      return;
    }
    // Parity can also be a chunk of an object: a client that knows the contents can store their sum.
    const isLive = layout.shards.some(({ id }) => !set.holds.isFree(id) || init.isNeeded(id));
    if (!isLive && (await isEnded(set, { id: stripe_id, layout }, init.signal))) return;
    const isSafe = isWhole(set, { id: stripe_id, layout });
    for (const { id, home } of layout.shards) {
      addHome(home, id);
      if (!isSafe) continue;
      for (const member of set.members) {
        if (member.id !== home && member.holds('content', id)) release(member.id, id);
      }
    }
  });
  return {
    // The shards of a stripe that could not be read are unknown, so all parity stays.
    isHome: (member, id) =>
      homes.get(member.id)?.has(id) === true ||
      (hasUnread && member.volume.typeOf('content', id) === RecordType.parity),
    // The filter may confuse ids, so another volume must hold the content in any case. A volume that was added or lost since
    // may have damaged a stripe.
    isReleased: (member, id) =>
      set.lifecycle.changes_total === changes_total &&
      released.get(member.id)?.isOverflowed === false &&
      released.get(member.id)?.has(id) === true &&
      set.members.some((each) => each !== member && each.holdsDurably('content', id)),
  };
}

/** A stripe that could not be dissolved on a volume is kept; the other volumes reclaim their space all the same. */
async function isEnded(set: VolumeSet, stripe: FoundStripe, signal: AbortSignal): Promise<boolean> {
  try {
    await set.stripes.end(stripe, signal);
    return true;
  } catch {
    signal.throwIfAborted();
    return false;
  }
}
