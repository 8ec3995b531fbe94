/**
 * The state of an object across the volumes of a set.
 *
 * Current volumes agree, except for writes under way: an object that one of them holds exists. An object that they removed is
 * gone, even if a stale volume still holds it. For objects unknown to them, the stale volume decides.
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

/** Whether a current volume recorded the removal of the object. */
export const isRemoved = (members: readonly Member[], id: Uint8Array): boolean =>
  members.some((member) => member.isReadable && member.isCurrent && member.volume.wasRemoved(id));

export function isObjectPinned(members: readonly Member[], id: Uint8Array): boolean {
  const readable = members.filter((member) => member.isReadable);
  const current = readable.filter((member) => member.isCurrent);
  if (current.some((member) => member.volume.isPinned(id))) return true;
  if (current.some((member) => member.volume.has('object', id))) return false;
  return readable.some((member) => member.volume.isPinned(id));
}
