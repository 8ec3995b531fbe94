/**
 * Tells a volume that was away what was decided meanwhile.
 *
 * Promise: when it has ended, the volume says the same about every object as those that have heard everything. What it
 * still has of removed objects is removed there as well; what it alone knows stays. Decisions that are made while this
 * runs reach the volume like all others; when it misses one, this has to be begun anew. Nothing is told while those who
 * would know are away, nor to a volume that was used apart, until somebody takes it in: what was removed there alone comes
 * back. When the volume is the one that has heard more, the others are told. Bound: a page of an inventory at a time. Cancellation: by the signal; begun anew it does the rest.
 */
import { decodeStripe, RecordType, type NewRecord } from '@ron/cas';
import { RonError, sched } from '@ron/kernel';
import { mergeInventories } from './inventories.ts';
import type { Member } from './member.ts';
import { readKnown, type Known } from './roster.ts';
import type { VolumeSet } from './volume-set.ts';

const EMPTY = new Uint8Array(0);
const onPage = (): Promise<void> => sched.pause('volumes.settle');

export async function reconcile(set: VolumeSet, member: Member, signal: AbortSignal): Promise<void> {
  const { membership } = set;
  const known = await readKnown(member.volume, signal);
  if (membership.isBehind(member, known)) return goBy(set, member, known);
  const { missed_total } = member;
  const others = set.members.filter((each) => each.isReadable && each.isCurrent && each !== member);
  const missing = membership.missing();
  if (others.length === 0 && missing.length > 0) {
    throw new RonError(
      'not_ready',
      `no current volume is here; away: ${missing.map((id) => membership.placeOf(id)).join(', ')}`,
    );
  }
  if (membership.isApart(known) && !member.isTakenIn) {
    member.isApart = true;
    throw new RonError('conflict', `${member.name} was used apart from the others`);
  }
  await mergeInventories({ members: [member], kind: 'object', onPage, signal }, ({ held }) =>
    set.has('object', held.id) ? undefined : removeOn(set, member, held.id, signal),
  );
  await mergeInventories({ members: others, kind: 'object', onPage, signal }, ({ held }) =>
    bringUp(set, member, held.id, signal),
  );
  await mergeInventories({ members: [member], kind: 'stripe', onPage, signal }, ({ held }) =>
    checkStripe(set, member, held.id, signal),
  );
  // In one step: a decision that comes later finds it among those that count.
  if (member.missed_total !== missed_total || !set.members.includes(member) || !member.isReadable) {
    throw new RonError('conflict', `${member.name} missed something meanwhile`);
  }
  member.isApart = false;
  await membership.admit(member, signal);
}

/** Who comes has heard what the others missed: they are told next. */
function goBy(set: VolumeSet, member: Member, { roster, ...known }: Known): void {
  if (roster === undefined || !set.members.includes(member) || !member.isReadable) return;
  set.membership.goBy(member, { ...known, roster });
  for (const { id } of set.members) if (roster.draining.includes(id)) set.life.beginDrain(id);
}

const mark = (type: number, id: Uint8Array): NewRecord => ({ type, id, payload: EMPTY });

async function removeOn(set: VolumeSet, member: Member, id: Uint8Array, signal: AbortSignal): Promise<void> {
  // In one step with the write: what is put after this look is ordered after the removal.
  if (!set.has('object', id)) await member.write([mark(RecordType.remove, id)], signal);
}

/** An object that others have: the volume must not say that it is gone, and has to know whether it is pinned. */
function bringUp(set: VolumeSet, member: Member, id: Uint8Array, signal: AbortSignal): void | Promise<void> {
  const isPinned = set.isPinned(id);
  const isMarked = member.volume.isPinned(id);
  if (!member.volume.wasRemoved(id) && isPinned === isMarked) return undefined;
  return bringUpSlowly(set, member, id, signal);
}

async function bringUpSlowly(set: VolumeSet, member: Member, id: Uint8Array, signal: AbortSignal): Promise<void> {
  if (member.volume.wasRemoved(id)) await set.copyObject(id, member, signal);
  const isPinned = set.isPinned(id);
  if (isPinned !== member.volume.isPinned(id)) {
    await member.write([mark(isPinned ? RecordType.pin : RecordType.unpin, id)], signal);
  }
}

/** A stripe that nobody else knows, and whose shards are not all there, was given up meanwhile. */
async function checkStripe(set: VolumeSet, member: Member, id: Uint8Array, signal: AbortSignal): Promise<void> {
  const isKnown = set.members.some((each) => each !== member && each.isCurrent && each.holds('stripe', id));
  const record = isKnown ? undefined : await member.volume.get('stripe', id, signal);
  const shards = (record && decodeStripe(record.payload)?.shards) ?? [];
  const isWhole = shards.every((shard) => set.members.some((each) => each.holds('content', shard.id)));
  if (record === undefined || isWhole) return;
  await member.write([{ type: RecordType.unstripe, id, payload: record.payload }], signal);
}
