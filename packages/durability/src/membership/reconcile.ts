/**
 * Reconciles a stale volume with the decisions that it missed.
 *
 * Contract: afterwards the volume agrees with the current volumes about every object. Removed objects are removed there too;
 * objects that only it has stay. Records that were replaced meanwhile (another media type) are copied to it. Decisions made
 * during the run reach the volume like all others; if it misses one, the run fails and has to be repeated. It fails while no
 * current volume is open and some are absent, and for a diverged volume until the operator adopts it: objects that were removed
 * on one side only come back. If the volume is ahead of the others, its roster is adopted and they are reconciled instead.
 * Bound: a page of an inventory at a time. Cancellation: by the signal; a later run does the rest.
 */
import { decodeStripe, RecordType, type Held, type NewRecord } from '@ron/cas';
import { isRonError, RonError, sched } from '@ron/kernel';
import { mergeInventories } from '../repair/inventories.ts';
import type { Member } from './member.ts';
import { readKnown, type Known } from './roster.ts';
import type { VolumeSet } from '../set/volume-set.ts';

const EMPTY = new Uint8Array(0);
const onPage = (): Promise<void> => sched.pause('volumes.reconcile');

export async function reconcile(set: VolumeSet, member: Member, signal: AbortSignal): Promise<void> {
  const { membership } = set;
  const known = await readKnown(member.volume, signal);
  if (membership.isAhead(member, known)) return adoptRoster(set, member, known);
  if (membership.isMoreReliable(member, known) && isOpen(set, member))
    return await membership.prefer(member, known, signal);
  const { missed_total } = member;
  const others = set.members.filter((each) => each.isReadable && each.isCurrent && each !== member);
  const missing = membership.missing();
  if (others.length === 0 && missing.length > 0) {
    throw new RonError(
      'not_ready',
      `no current volume is here; away: ${missing.map((id) => membership.lastDirOf(id)).join(', ')}`,
    );
  }
  const freshness = member.open?.freshness;
  if ((freshness === 'joining' || freshness === 'diverged') && membership.hasDiverged(known)) {
    member.apply({ type: 'diverge' });
    throw new RonError('conflict', `${member.name} was used apart from the others`);
  }
  let newest_s = 0;
  await mergeInventories({ members: [member], kind: 'object', onPage, signal }, ({ held }) => {
    newest_s = Math.max(newest_s, held.put_s);
    return set.knowsObject(held.id) ? undefined : removeOn(set, member, held.id, signal);
  });
  await mergeInventories({ members: others, kind: 'object', onPage, signal }, ({ held }) =>
    updateObject(set, member, held, newest_s, signal),
  );
  await mergeInventories({ members: [member], kind: 'stripe', onPage, signal }, ({ held }) =>
    checkStripe(set, member, held.id, signal),
  );
  // In one step with the admission: later decisions are sent to it as to any current volume.
  if (member.missed_total !== missed_total || !isOpen(set, member)) {
    throw new RonError('conflict', `${member.name} missed a decision meanwhile`);
  }
  await membership.admit(member, signal);
}

const isOpen = (set: VolumeSet, member: Member): boolean => set.members.includes(member) && member.isReadable;

/** The volume has decisions that the others missed: they are reconciled next. */
function adoptRoster(set: VolumeSet, member: Member, { roster, ...known }: Known): void {
  if (roster === undefined || !isOpen(set, member)) return;
  set.membership.adoptRoster(member, { ...known, roster });
  for (const { id } of set.members) if (roster.draining.includes(id)) set.lifecycle.beginDrain(id);
}

const mark = (type: number, id: Uint8Array): NewRecord => ({ type, id, payload: EMPTY });

async function removeOn(set: VolumeSet, member: Member, id: Uint8Array, signal: AbortSignal): Promise<void> {
  // In one step with the write: a later put is ordered after the removal.
  if (!set.knowsObject(id)) await member.write([mark(RecordType.remove, id)], signal);
}

/** Brings an object of the current volumes up to date: its removal mark, its record and its pin. */
function updateObject(
  set: VolumeSet,
  member: Member,
  { id, put_s }: Held,
  newest_s: number,
  signal: AbortSignal,
): void | Promise<void> {
  const { volume } = member;
  const isMissing = !volume.has('object', id) && !volume.wasRemoved(id);
  if (isMissing && set.isPinned(id) === volume.isPinned(id)) return undefined;
  return updateObjectSlowly(set, member, id, { put_s, newest_s }, signal);
}

interface PutTimes {
  /** When the others last wrote the record. */
  readonly put_s: number;
  /** The newest record of the volume. */
  readonly newest_s: number;
}

/**
 * Whether others may have replaced the object's record since the volume last wrote it. Times are in seconds: a replacement in
 * the same second concerns only the newest records of the volume, those of the second in which it became absent.
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

async function updateObjectSlowly(
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
 * A stripe that no other current volume lists may have been dissolved meanwhile. It is dissolved here too if too few of its
 * shards are left to rebuild a chunk. With enough shards it stays: it may be the only way to rebuild one, and compaction
 * dissolves it once none of its chunks is needed. While another volume is absent or unverified, all stripes stay.
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
