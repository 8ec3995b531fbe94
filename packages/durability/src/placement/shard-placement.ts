/**
 * Assigns the shards of a stripe to volumes: each to another one, with as few as possible in one failure domain.
 *
 * Shards stay where they are if possible: a matching of shards and volumes, by augmenting paths. The others go to the best
 * volumes by the placement of their ids.
 */
import { RonError } from '@ron/kernel';
import type { Member } from '../membership/member.ts';
import { mostInDomain, type Placement } from './placement.ts';

export interface ShardPlacementInit {
  placement: Placement<Member>;
  /** Data first, then parity. */
  ids: readonly Uint8Array[];
  /** The volumes that already hold a shard. */
  holdersOf: (id: Uint8Array) => readonly Member[];
}

export function placeShards({ placement, ids, holdersOf }: ShardPlacementInit): Member[] {
  const usable = placement.places.filter((member) => member.takesRecords);
  if (usable.length < ids.length) {
    throw new RonError('not_ready', `${usable.length} volumes take records, a stripe needs ${ids.length}`);
  }
  const most = mostInDomain(usable, ids.length);
  // With one shard per domain, a domain is a slot; otherwise a volume is one, and surplus shards of a domain move.
  const slotOf = (member: Member): string => (most === 1 ? member.domain : member.id);
  const candidates = ids.map((id) => holdersOf(id).filter((member) => usable.includes(member)));
  const homes: (Member | undefined)[] = ids.map(() => undefined);
  const isFree = (member: Member): boolean =>
    !homes.includes(member) && homes.filter((home) => home?.domain === member.domain).length < most;
  for (const { shard, member } of match(candidates, slotOf).values()) if (isFree(member)) homes[shard] = member;
  for (const [shard, id] of ids.entries()) {
    homes[shard] ??= placement.order(id).find((member) => usable.includes(member) && isFree(member));
  }
  if (homes.includes(undefined)) throw new RonError('not_ready', 'there are too few volumes for a stripe');
  return homes as Member[];
}

interface Taken {
  readonly shard: number;
  readonly member: Member;
}

/** Matches shards with slots so that as many as possible stay where they are. */
function match(candidates: readonly (readonly Member[])[], slotOf: (member: Member) => string): Map<string, Taken> {
  const taken = new Map<string, Taken>();
  const assign = (shard: number, tried: Set<string>): boolean => {
    for (const member of candidates[shard]!) {
      const slot = slotOf(member);
      if (tried.has(slot)) continue;
      tried.add(slot);
      const holder = taken.get(slot);
      if (holder !== undefined && !assign(holder.shard, tried)) continue;
      taken.set(slot, { shard, member });
      return true;
    }
    return false;
  };
  for (const shard of candidates.keys()) assign(shard, new Set());
  return taken;
}
