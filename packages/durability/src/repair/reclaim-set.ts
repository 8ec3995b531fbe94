/**
 * Reclaims space on a set of volumes, one after the other: unneeded contents, copies that their stripe replaces, and
 * copies on volumes that are not to have them.
 *
 * Promise: a copy goes only while those who are to have it have it durably, asked in the step in which it goes; so it is
 * always found by a reader that asks again. Records that are being made or repaired stay. Nothing goes unless every volume
 * on the roster has answered completely; a run during which a volume comes or goes ends with `not_ready`.
 * Bound: as the volumes, and some bytes for each shard of a stripe. Cancellation: by the signal. One at a time.
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

/** Whether no volume could bring a removed object back: all have answered completely, and none that was given up may return. */
const mayForgetRemovals = ({ incomplete, membership }: VolumeSet): boolean =>
  incomplete === undefined && membership.roster.lost.length === 0;

/**
 * Everybody who is to have it has it, and this one is not among them. What it is part of is not known here: so there have to
 * be as many as of a part of a manifest.
 */
function isSurplus(set: VolumeSet, member: Member, id: Uint8Array): boolean {
  const wanted = set.placement.choose(id, set.lone_copies);
  if (wanted.length < set.lone_copies || wanted.includes(member)) return false;
  return wanted.every((each) => each.holdsDurably('content', id));
}
