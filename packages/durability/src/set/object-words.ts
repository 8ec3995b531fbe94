/**
 * What several volumes say about an object, taken together.
 *
 * Volumes that have heard everything agree, but for what is being written: what one of them has is there. What they say is
 * gone is gone, also when a volume that was away still has it. About what they never heard of, that one is believed.
 */
import type { Member } from '../membership/member.ts';

export function isObjectHere(members: readonly Member[], id: Uint8Array): boolean {
  let staleHas = false;
  for (const member of members) {
    if (!member.holds('object', id)) continue;
    if (member.isCurrent) return true;
    staleHas = true;
  }
  return staleHas && !isRemoved(members, id);
}

/** Whether a volume that has heard everything says that the object is gone. */
export const isRemoved = (members: readonly Member[], id: Uint8Array): boolean =>
  members.some((member) => member.isReadable && member.isCurrent && member.volume.wasRemoved(id));

export function isObjectPinned(members: readonly Member[], id: Uint8Array): boolean {
  const readable = members.filter((member) => member.isReadable);
  const current = readable.filter((member) => member.isCurrent);
  if (current.some((member) => member.volume.isPinned(id))) return true;
  if (current.some((member) => member.volume.has('object', id))) return false;
  return readable.some((member) => member.volume.isPinned(id));
}
