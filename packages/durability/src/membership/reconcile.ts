/**
 * Reconciles a volume that was away with the decisions that were made meanwhile.
 *
 * Contract: when it has ended, the volume agrees with the current volumes about every object. Records of removed objects
 * are removed there too; objects that it alone knows stay. Records that were replaced meanwhile (another media type) are
 * copied to it. Decisions that are made while this runs reach the volume like all others; when it misses one, this has to
 * be begun anew. It fails while no current volume is here and some are away, and for a volume that was used apart until the
 * operator takes it in: objects that were removed there alone come back. When the volume has later decisions than the
 * others, they are reconciled instead.
 * Bound: a page of an inventory at a time. Cancellation: by the signal; begun anew it does the rest.
 */
import { decodeStripe, RecordType, type Held, type NewRecord } from '@ron/cas';
import { isRonError, RonError, sched } from '@ron/kernel';
import { mergeInventories } from '../repair/inventories.ts';
import type { Member } from './member.ts';
import { readKnown, type Known } from './roster.ts';
import type { VolumeSet } from '../set/volume-set.ts';

const EMPTY = new Uint8Array(0);
const onPage = (): Promise<void> => sched.pause('volumes.settle');

export async function reconcile(set: VolumeSet, member: Member, signal: AbortSignal): Promise<void> {
  const { membership } = set;
  const known = await readKnown(member.volume, signal);
  if (membership.isBehind(member, known)) return goBy(set, member, known);
  if (membership.isSurer(member, known) && isHere(set, member)) return await membership.prefer(member, known, signal);
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
  let newest_s = 0;
  await mergeInventories({ members: [member], kind: 'object', onPage, signal }, ({ held }) => {
    newest_s = Math.max(newest_s, held.put_s);
    return set.knowsObject(held.id) ? undefined : removeOn(set, member, held.id, signal);
  });
  await mergeInventories({ members: others, kind: 'object', onPage, signal }, ({ held }) =>
    bringUp(set, member, held, newest_s, signal),
  );
  await mergeInventories({ members: [member], kind: 'stripe', onPage, signal }, ({ held }) =>
    checkStripe(set, member, held.id, signal),
  );
  // In one step: a decision that comes later finds it among those that count.
  if (member.missed_total !== missed_total || !isHere(set, member)) {
    throw new RonError('conflict', `${member.name} missed something meanwhile`);
  }
  member.isApart = false;
  await membership.admit(member, signal);
}

const isHere = (set: VolumeSet, member: Member): boolean => set.members.includes(member) && member.isReadable;

/** The volume has decisions that the others missed: they are reconciled next. */
function goBy(set: VolumeSet, member: Member, { roster, ...known }: Known): void {
  if (roster === undefined || !isHere(set, member)) return;
  set.membership.goBy(member, { ...known, roster });
  for (const { id } of set.members) if (roster.draining.includes(id)) set.life.beginDrain(id);
}

const mark = (type: number, id: Uint8Array): NewRecord => ({ type, id, payload: EMPTY });

async function removeOn(set: VolumeSet, member: Member, id: Uint8Array, signal: AbortSignal): Promise<void> {
  // In one step with the write: what is put after this look is ordered after the removal.
  if (!set.knowsObject(id)) await member.write([mark(RecordType.remove, id)], signal);
}

/** An object that others have: the volume must not say that it is gone, and has to know whether it is pinned. */
function bringUp(
  set: VolumeSet,
  member: Member,
  { id, put_s }: Held,
  newest_s: number,
  signal: AbortSignal,
): void | Promise<void> {
  const { volume } = member;
  const isMissing = !volume.has('object', id) && !volume.wasRemoved(id);
  if (isMissing && set.isPinned(id) === volume.isPinned(id)) return undefined;
  return bringUpSlowly(set, member, id, { put_s, newest_s }, signal);
}

interface PutTimes {
  /** When the others last wrote the record. */
  readonly put_s: number;
  /** The newest record of the volume. */
  readonly newest_s: number;
}

/**
 * Whether others may have replaced the object's record since the volume last wrote it. Times are in seconds: a replacement in
 * the same second can be missed only by the newest records of the volume, those of the second in which it went away.
 */
async function mayBeOlder(member: Member, id: Uint8Array, { put_s, newest_s }: PutTimes): Promise<boolean> {
  const known_s = await member.volume.putTime_s('object', id);
  return known_s !== undefined && (put_s > known_s || (put_s === known_s && known_s >= newest_s));
}

async function isOutdated(set: VolumeSet, member: Member, id: Uint8Array, signal: AbortSignal): Promise<boolean> {
  const theirs = await set.get('object', id, signal);
  try {
    const own = await member.volume.get('object', id, signal);
    return theirs !== undefined && own !== undefined && Buffer.compare(theirs.meta, own.meta) !== 0;
  } catch (error) {
    // A new copy replaces a damaged record.
    if (isRonError(error, 'integrity')) return theirs !== undefined;
    throw error;
  }
}

async function bringUpSlowly(
  set: VolumeSet,
  member: Member,
  id: Uint8Array,
  times: PutTimes,
  signal: AbortSignal,
): Promise<void> {
  const isOlder = (await mayBeOlder(member, id, times)) && (await isOutdated(set, member, id, signal));
  if (isOlder || member.volume.wasRemoved(id)) await set.copyObject(id, member, signal);
  const isPinned = set.isPinned(id);
  if (isPinned !== member.volume.isPinned(id)) {
    await member.write([mark(isPinned ? RecordType.pin : RecordType.unpin, id)], signal);
  }
}

/**
 * A stripe that no other current volume knows may have been given up meanwhile. It ends when too few of its shards are left
 * to rebuild a content; with enough shards it stays: it may be the last way to a content, and compaction ends it when none
 * of its contents is needed. While another volume is away or in doubt nothing ends: shards may be there.
 */
async function checkStripe(set: VolumeSet, member: Member, id: Uint8Array, signal: AbortSignal): Promise<void> {
  const isKnown = set.members.some((each) => each !== member && each.isCurrent && each.holds('stripe', id));
  const record = isKnown ? undefined : await member.volume.get('stripe', id, signal);
  const layout = record && decodeStripe(record.payload);
  if (record === undefined || layout === undefined) return;
  const left = layout.shards.filter((shard) => set.members.some((each) => each.holds('content', shard.id)));
  if (left.length >= layout.data_shards || set.completeness.reason(member) !== undefined) return;
  await member.write([{ type: RecordType.unstripe, id, payload: record.payload }], signal);
}
