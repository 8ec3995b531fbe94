/** The state of a volume as the admin API and `/readyz` show it. */
import type { Member, VolumeSet } from '@ron/durability';
import type { VolumeInfo } from '@ron/proto';
import type { Slot } from './volume-slot.ts';

/** Why it is not open, takes no writes, or needs a decision of the operator. */
export function problemOf(slot: Slot, member: Member | undefined, set: VolumeSet): string | undefined {
  const problem = slot.problem ?? slot.writes?.problem;
  if (problem !== undefined || member === undefined) return problem;
  if (member.isDiverged) {
    return `${slot.name}: it and the others were used apart; \`ron volumes restore\` reconciles them, and may restore objects that were removed on one side`;
  }
  const { length } = set.placement.places;
  if (!member.isDraining || length >= set.lone_copies) return undefined;
  return `${slot.name}: it cannot be drained: ${set.lone_copies} copies need as many volumes, ${length} would be left`;
}

export function viewOf(slot: Slot, member: Member | undefined, set: VolumeSet): VolumeInfo {
  const { name, id } = slot;
  const { domain, weight } = slot.spec;
  const reason = problemOf(slot, member, set) ?? '';
  if (member === undefined || !slot.isOpen) {
    const gone = { condition: 'failed', reason, is_current: false, used_bytes: 0, segments: 0 } as const;
    return { ...(id !== undefined && { id }), name, domain, weight: weight ?? 0, life: 'lost', ...gone };
  }
  const seen = member.view;
  return {
    id: member.id,
    name: member.name,
    domain: member.domain,
    weight: member.weight,
    life: member.status,
    condition: seen.condition,
    reason: seen.reason || reason,
    is_current: member.isCurrent,
    ...member.volume.stats(),
  };
}
