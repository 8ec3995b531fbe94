/**
 * Reclaims space on the volumes of a set, one after the other: unneeded contents, copies that a stripe replaces, and surplus
 * copies.
 *
 * Contract: a copy is removed only while the volumes that should have it hold it durably, checked in the same step, so a
 * reader that retries always finds it. Records that are being written or repaired stay. Nothing is removed unless every
 * volume on the roster has answered; a run during which a volume is added or lost fails with `not_ready`.
 * Bound: that of the volumes, and a few bytes for each shard. Cancellation: by the signal. One run at a time.
 */
import { CompletenessGuard, type Reclaimed, type ReclaimInit } from '@ron/cas';
import type { Member } from '../membership/member.ts';
import { surveyStripes, type StripeSurvey } from '../stripes/stripe-survey.ts';
import type { VolumeSet } from '../set/volume-set.ts';

export async function reclaimSet(set: VolumeSet, init: ReclaimInit): Promise<Reclaimed> {
  const total = { segments: 0, moved_bytes: 0, freed_bytes: 0 };
  let failure: unknown;
  const guard = new CompletenessGuard(set);
  guard.check();
  set.holds.beginSweep();
  try {
    const survey = await surveyStripes(set, init);
    for (const member of set.members.filter((each) => each.isWritable)) {
      try {
        const reclaimed = await reclaimOn(set, member, survey, guard, init);
        total.segments += reclaimed.segments;
        total.moved_bytes += reclaimed.moved_bytes;
        total.freed_bytes += reclaimed.freed_bytes;
        init.onProgress?.({ ...total });
      } catch (error) {
        init.signal.throwIfAborted();
        guard.check();
        failure ??= error;
      }
    }
  } finally {
    set.holds.endSweep();
  }
  if (failure !== undefined && total.segments === 0) throw failure;
  return total;
}

async function reclaimOn(
  set: VolumeSet,
  member: Member,
  survey: StripeSurvey,
  guard: CompletenessGuard,
  init: ReclaimInit,
): Promise<Reclaimed> {
  return await member.volume.reclaim({
    ...init,
    isNeeded: (id) => {
      guard.check();
      if (!set.holds.isFree(id) || survey.isHome(member, id)) return true;
      return init.isNeeded(id) && !survey.isReleased(member, id) && !isSurplus(set, member, id);
    },
    mayForgetRemovals: () => mayForgetRemovals(set) && init.mayForgetRemovals?.() !== false,
    onProgress: () => undefined,
  });
}

/** Whether no volume could bring a removed object back: all have answered, and no abandoned one may return. */
const mayForgetRemovals = ({ incomplete, membership }: VolumeSet): boolean =>
  incomplete === undefined && membership.roster.lost.length === 0;

/**
 * Whether this is a surplus copy: every volume that should have it holds it. The use of the content is not known here, so the
 * highest number of copies is required.
 */
function isSurplus(set: VolumeSet, member: Member, id: Uint8Array): boolean {
  const wanted = set.placement.choose(id, set.lone_copies);
  if (wanted.length < set.lone_copies || wanted.includes(member)) return false;
  return wanted.every((each) => each.holdsDurably('content', id));
}
