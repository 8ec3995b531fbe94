/** How many copies of something there are to be, and whether those that there are suffice. */
import { isObject, RecordType } from '@ron/cas';
import type { Member } from '../membership/member.ts';
import type { VolumeSet } from '../set/volume-set.ts';

/** What a volume has a content as. */
export const typeOf = (member: Member, id: Uint8Array): number =>
  member.volume.typeOf('content', id) ?? RecordType.chunk;

/** How many copies there are to be of a content: what one volume has as a chunk another may have as a part of a manifest. */
export function targetOfContent(set: VolumeSet, id: Uint8Array, holders: readonly Member[]): number {
  const types = holders.map((member) => typeOf(member, id));
  return Math.max(...types.map((type) => set.targetOf(isObject(type) ? RecordType.chunk : type, id)));
}

/** Whether there are fewer copies than there could be, or they lie in fewer domains. */
export function lacks(set: VolumeSet, target: number, holders: readonly Member[]): boolean {
  const { placement } = set;
  let active = 0;
  for (const member of holders) if (member.life === 'active') active += 1;
  if (active < Math.min(target, placement.places.length)) return true;
  if (placement.domains === placement.places.length) return false;
  const domains = new Set<string>();
  for (const member of holders) if (member.life === 'active') domains.add(member.domain);
  return domains.size < Math.min(target, placement.domains);
}
