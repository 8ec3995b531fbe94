/**
 * Surveys stripes before space is reclaimed on a volume: which shards have to stay, and which copies may go.
 *
 * Promise: a copy may go only when its stripe is whole: every shard durable in a place of its own, and known to every volume
 * with parity of it; and only while no volume came or went since. What is not known stays. Stripes that protect nothing any
 * more are given up. Bound: `HOME_BYTES_MAX` for the shards of each volume, and 12 to 24 bytes for each copy that may go.
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
  /** A shard of a stripe that is needed, in its place. */
  isHome(member: Member, id: Uint8Array): boolean;
  /** A copy of a content that its stripe protects. */
  isReleased(member: Member, id: Uint8Array): boolean;
}

export async function surveyStripes(set: VolumeSet, init: ReclaimInit): Promise<StripeSurvey> {
  const { changes_total } = set.life;
  const ids_max = 2 ** 26;
  // A shard that is found by chance stays; it goes another time. There are any number of shards.
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
    // Parity can be a chunk of an object too: a client that knows the contents can store their sum.
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
    // What a stripe is made of that could not be read is not known: so all parity stays.
    isHome: (member, id) =>
      homes.get(member.id)?.has(id) === true ||
      (hasUnread && member.volume.typeOf('content', id) === RecordType.parity),
    // The set may take one for another: so another volume has to have it in any case. A volume that came or went since
    // may have made a stripe less than whole.
    isReleased: (member, id) =>
      set.life.changes_total === changes_total &&
      released.get(member.id)?.isOverflowed === false &&
      released.get(member.id)?.has(id) === true &&
      set.members.some((each) => each !== member && each.holdsDurably('content', id)),
  };
}

/** One that a volume could not be told of is kept: others give back their room all the same. */
async function isEnded(set: VolumeSet, stripe: FoundStripe, signal: AbortSignal): Promise<boolean> {
  try {
    await set.stripes.end(stripe, signal);
    return true;
  } catch {
    signal.throwIfAborted();
    return false;
  }
}
