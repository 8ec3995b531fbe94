/**
 * Whether a stripe is as safe as intended: where its shards are, and which volumes have recorded it.
 *
 * Each shard should have a volume of its own, with as few as possible in one failure domain; others are crowded. Every volume
 * with parity should record the stripe, so that the loss of all records of a stripe leaves its contents.
 */
import { encodeStripe, type StripeLayout } from '@ron/cas';
import type { Member } from '../membership/member.ts';
import { mostInDomain } from '../placement/placement.ts';
import type { FoundStripe } from './stripes.ts';
import type { VolumeSet } from '../set/volume-set.ts';

const isActive = (member: Member): boolean => member.isActive;

/**
 * Other shards of a stripe that would be lost with a volume: those on itself, and those in its domain beyond the number
 * allowed there.
 */
interface Neighbours {
  readonly onVolume: number;
  readonly inDomain: number;
  readonly isCrowd: boolean;
}

/** Of the shards `among`. Absent volumes count for none. */
function neighboursOf(
  set: VolumeSet,
  layout: StripeLayout,
  among: (index: number) => boolean,
  volume_id: string,
): Neighbours {
  const { places } = set.placement;
  const domains = new Map(places.map((place) => [place.id, place.domain]));
  const mine = domains.get(volume_id);
  const homes = layout.shards.flatMap(({ home }, at) => (among(at) && domains.has(home) ? home : []));
  const onVolume = mine === undefined ? 0 : homes.filter((home) => home === volume_id).length;
  const inDomain = mine === undefined ? 0 : homes.filter((home) => domains.get(home) === mine).length;
  const isCrowd = onVolume > 0 || inDomain >= mostInDomain(places, layout.shards.length);
  return { onVolume, inDomain, isCrowd };
}

/** Whether shards before it occupy its place: a loss that should cost one shard would cost more. */
export const isCrowded = (set: VolumeSet, layout: StripeLayout, index: number): boolean =>
  neighboursOf(set, layout, (at) => at < index, layout.shards[index]!.home).isCrowd;

/** Whether the assigned volume of a shard has it. */
export const isAtHome = (set: VolumeSet, { id, home }: StripeLayout['shards'][number]): boolean =>
  set.members.some((member) => member.id === home && isActive(member) && member.holdsDurably('content', id));

/** The open volumes that should record a stripe. */
export function knowersOf(set: VolumeSet, layout: StripeLayout): Member[] {
  const ids = new Set(layout.shards.slice(layout.data_shards).map((shard) => shard.home));
  return set.members.filter((member) => isActive(member) && ids.has(member.id));
}

/** Every shard is durable in its place, and every volume that should record the stripe has it, so no copy is needed. */
export function isWhole(set: VolumeSet, { id, layout }: FoundStripe): boolean {
  return (
    layout.shards.every((shard, index) => isAtHome(set, shard) && !isCrowded(set, layout, index)) &&
    knowersOf(set, layout).every((member) => member.holdsDurably('stripe', id))
  );
}

/**
 * The layout in force when volumes have recorded different ones, as after an absence: the one with the most shards in place.
 */
export function bestOf(set: VolumeSet, layouts: Iterable<StripeLayout>): StripeLayout | undefined {
  let best: { layout: StripeLayout; score: number; key: string } | undefined;
  for (const layout of layouts) {
    const home = layout.shards.filter((shard) => isAtHome(set, shard)).length;
    const apart = new Set(layout.shards.map((shard) => shard.home)).size;
    const score = home * (layout.shards.length + 1) + apart;
    const key = keyOf(layout);
    const isBetter = best === undefined || score > best.score || (score === best.score && key > best.key);
    if (isBetter) best = { layout, score, key };
  }
  return best?.layout;
}

const keyOf = (layout: StripeLayout): string => encodeStripe(layout).toString('latin1');

/** Volumes to write a stripe to: those that should record it, and those that have recorded another layout. */
export function volumesToUpdate(
  set: VolumeSet,
  id: Uint8Array,
  layout: StripeLayout,
  views: Map<Member, StripeLayout>,
): Member[] {
  const key = keyOf(layout);
  const isOutdated = (view: StripeLayout): boolean => view.isNamed === true || keyOf(view) !== key;
  const missing = knowersOf(set, layout).filter((member) => !views.has(member) || !member.holdsDurably('stripe', id));
  const differs = [...views].flatMap(([member, view]) => (isActive(member) && isOutdated(view) ? [member] : []));
  return [...new Set([...missing, ...differs])];
}

/**
 * The volume that should keep a shard from now on: the present one, unless another shard of the stripe is there; else one
 * that already has it, before one that has to receive it. If every place is taken, it stays, or goes where the fewest others
 * are. Undefined when no volume takes records.
 */
export function homeFor(
  set: VolumeSet,
  layout: StripeLayout,
  index: number,
  holders: readonly Member[],
): Member | undefined {
  const { id, home } = layout.shards[index]!;
  const others = (member: Member): Neighbours => neighboursOf(set, layout, (at) => at !== index, member.id);
  const having = holders.filter(isActive).toSorted((a, b) => Number(b.id === home) - Number(a.id === home));
  if (having[0]?.id === home && !isCrowded(set, layout, index)) return having[0];
  const takers = set.placement.order(id).filter((member) => member.takesRecords);
  const former = takers.filter((member) => member.id === home);
  const all = [...having, ...former, ...takers];
  const free = all.find((member) => !others(member).isCrowd);
  if (free !== undefined) return free;
  const byCrowd = all.map((member) => ({ member, ...others(member) }));
  byCrowd.sort((a, b) => a.onVolume - b.onVolume || a.inDomain - b.inDomain);
  return having.find((member) => member.id === home) ?? byCrowd[0]?.member;
}
