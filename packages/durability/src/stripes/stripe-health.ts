/**
 * Whether a stripe is as safe as it is meant to be: where its shards lie, and who knows of it.
 *
 * Each shard is to lie on a volume of its own, and as few as possible in one failure domain; others are crowded. Every
 * volume with parity is to know the stripe: so whoever is lost together with all that know it leaves the contents.
 */
import { encodeStripe, type StripeLayout } from '@ron/cas';
import type { Member } from '../membership/member.ts';
import { mostInDomain } from '../placement/placement.ts';
import type { FoundStripe } from './stripes.ts';
import type { VolumeSet } from '../set/volume-set.ts';

const isActive = (member: Member): boolean => member.life === 'active';

/** Other shards of a stripe that would be lost with a volume: on itself, and in its domain, where so many may be. */
interface Neighbours {
  readonly onVolume: number;
  readonly inDomain: number;
  readonly isCrowd: boolean;
}

/** Of the shards `among`. Volumes that are not here take no place. */
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

/** Whether shards that come before it take its place: a loss that should cost one would cost more. */
export const isCrowded = (set: VolumeSet, layout: StripeLayout, index: number): boolean =>
  neighboursOf(set, layout, (at) => at < index, layout.shards[index]!.home).isCrowd;

/** Whether the volume that is to have a shard has it. */
export const isAtHome = (set: VolumeSet, { id, home }: StripeLayout['shards'][number]): boolean =>
  set.members.some((member) => member.id === home && isActive(member) && member.holdsDurably('content', id));

/** The volumes that are to know a stripe, as far as they are here. */
export function knowersOf(set: VolumeSet, layout: StripeLayout): Member[] {
  const ids = new Set(layout.shards.slice(layout.data_shards).map((shard) => shard.home));
  return set.members.filter((member) => isActive(member) && ids.has(member.id));
}

/** Every shard is durable where it belongs, and everybody who is to know the stripe knows it: so no copy is needed. */
export function isWhole(set: VolumeSet, { id, layout }: FoundStripe): boolean {
  return (
    layout.shards.every((shard, index) => isAtHome(set, shard) && !isCrowded(set, layout, index)) &&
    knowersOf(set, layout).every((member) => member.holdsDurably('stripe', id))
  );
}

/** What counts when volumes tell different things of a stripe, as after one was away: where most shards are at home. */
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

/** Volumes that have to be told of a stripe: those that are to know it, and those that know something else. */
export function untold(
  set: VolumeSet,
  id: Uint8Array,
  layout: StripeLayout,
  views: Map<Member, StripeLayout>,
): Member[] {
  const key = keyOf(layout);
  const isOutdated = (view: StripeLayout): boolean => view.isNamed === true || keyOf(view) !== key;
  const lacks = knowersOf(set, layout).filter((member) => !views.has(member) || !member.holdsDurably('stripe', id));
  const differs = [...views].flatMap(([member, view]) => (isActive(member) && isOutdated(view) ? [member] : []));
  return [...new Set([...lacks, ...differs])];
}

/**
 * The volume that is to keep a shard from now on: where it is, unless another one of the stripe is there; else one that has
 * it before one that has to get it. When every place is taken, it stays where it is, or goes where the fewest others are.
 * Undefined when nobody takes records.
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
