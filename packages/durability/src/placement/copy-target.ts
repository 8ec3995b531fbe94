/** The intended number of copies of a record, and whether its copies suffice. */
import { isObject, RecordType } from '@ron/cas';
import type { Member } from '../membership/member.ts';
import type { VolumeSet } from '../set/volume-set.ts';

/** The type under which a volume holds a content. */
export const typeOf = (member: Member, id: Uint8Array): number =>
  member.volume.typeOf('content', id) ?? RecordType.chunk;

/** The intended number of copies of a content: a chunk on one volume may be a part of a manifest on another. */
export function targetOfContent(set: VolumeSet, id: Uint8Array, holders: readonly Member[]): number {
  const types = holders.map((member) => typeOf(member, id));
  return Math.max(...types.map((type) => set.targetOf(isObject(type) ? RecordType.chunk : type, id)));
}

/** Whether there are fewer copies than possible, or they are in fewer domains. */
export function isUnderReplicated(set: VolumeSet, target: number, holders: readonly Member[]): boolean {
  const { placement } = set;
  let active = 0;
  for (const member of holders) if (member.isActive) active += 1;
  if (active < Math.min(target, placement.places.length)) return true;
  if (placement.domains === placement.places.length) return false;
  const domains = new Set<string>();
  for (const member of holders) if (member.isActive) domains.add(member.domain);
  return domains.size < Math.min(target, placement.domains);
}
