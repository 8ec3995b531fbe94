/**
 * Which volume keeps which shard of a stripe: each shard another one, in another failure domain while there are enough.
 *
 * Contents stay where they are as far as that is possible: a matching of shards and volumes, by augmenting paths. What is
 * left over goes where its id wants to be.
 */
import { RonError } from '@ron/kernel';
import type { Member } from './member.ts';
import type { Placement } from './placement.ts';

export interface HomesInit {
  placement: Placement<Member>;
  /** Data first, then parity. */
  ids: readonly Uint8Array[];
  /** Who has a shard already. */
  holdersOf: (id: Uint8Array) => readonly Member[];
}

export function chooseHomes({ placement, ids, holdersOf }: HomesInit): Member[] {
  const usable = placement.places.filter((member) => member.takesRecords);
  if (usable.length < ids.length) {
    throw new RonError('not_ready', `${usable.length} volumes take records, a stripe needs ${ids.length}`);
  }
  const domains = new Set(usable.map((member) => member.domain)).size;
  const slotOf = (member: Member): string => (domains >= ids.length ? `d ${member.domain}` : `n ${member.name}`);
  const candidates = ids.map((id) => holdersOf(id).filter((member) => usable.includes(member)));
  const taken = match(candidates, slotOf);
  const homes: (Member | undefined)[] = ids.map(() => undefined);
  for (const { shard, member } of taken.values()) homes[shard] = member;
  return ids.map((id, shard) => {
    const home = homes[shard] ?? placement.order(id).find((each) => usable.includes(each) && !taken.has(slotOf(each)));
    if (home === undefined) throw new RonError('not_ready', 'there are too few volumes for a stripe');
    taken.set(slotOf(home), { shard, member: home });
    return home;
  });
}

interface Taken {
  readonly shard: number;
  readonly member: Member;
}

/** As many shards as possible stay where they are: who gets which slot. */
function match(candidates: readonly (readonly Member[])[], slotOf: (member: Member) => string): Map<string, Taken> {
  const taken = new Map<string, Taken>();
  const settle = (shard: number, tried: Set<string>): boolean => {
    for (const member of candidates[shard]!) {
      const slot = slotOf(member);
      if (tried.has(slot)) continue;
      tried.add(slot);
      const holder = taken.get(slot);
      if (holder !== undefined && !settle(holder.shard, tried)) continue;
      taken.set(slot, { shard, member });
      return true;
    }
    return false;
  };
  for (const shard of candidates.keys()) settle(shard, new Set());
  return taken;
}
