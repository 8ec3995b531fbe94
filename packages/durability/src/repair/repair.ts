/**
 * Repairs one record: copies it to volumes that lack it, or rebuilds a shard.
 *
 * Contract: bytes are verified before they are written, and read back after. Every read and write is paced first. An object
 * that is removed meanwhile is not restored. The record is checked first; an intact one is left alone.
 * Bound: one record, or the shards of one stripe. Cancellation: by the signal, at any wait.
 */
import { chunkKey, encodeStripe, isObject, RecordType, stripeId, type StripeLayout } from '@ron/cas';
import { isRonError, RonError } from '@ron/kernel';
import type { RepairResult } from '@ron/proto';
import type { Member } from '../membership/member.ts';
import type { WithVolumeTimeout } from '../set/volume-timeout.ts';
import type { RepairJob } from './repair-queue.ts';
import { bestOf, homeFor, knowersOf, volumesToUpdate } from '../stripes/stripe-health.ts';
import type { VolumeSet } from '../set/volume-set.ts';
import { isUnderReplicated, targetOfContent } from '../placement/copy-target.ts';

export interface RepairInit {
  set: VolumeSet;
  pace: (bytes: number, signal: AbortSignal) => Promise<void>;
  /** How long a volume may take for one record. */
  withVolumeTimeout: WithVolumeTimeout;
}

export async function repair(init: RepairInit, job: RepairJob, signal: AbortSignal): Promise<RepairResult> {
  const { holds } = init.set;
  const key = chunkKey(job.id);
  holds.take(key);
  try {
    if (job.kind === 'object') return await repairObject(init, job, signal);
    if (job.kind === 'stripe') return await repairLayout(init, job, signal);
    if (job.kind === 'shard' || init.set.stripes.protects(job.id)) return await repairShard(init, job, signal);
    return await repairContent(init, job, signal);
  } finally {
    holds.release(key);
  }
}

/** The volumes that hold it, except for one that failed to deliver it. */
async function goodHolders(
  { set, pace, withVolumeTimeout }: RepairInit,
  job: RepairJob,
  signal: AbortSignal,
): Promise<Member[]> {
  const kind = job.kind === 'object' ? 'object' : 'content';
  const holders = set.members.filter((member) => member.holdsDurably(kind, job.id));
  const suspect = holders.find((member) => member.id === job.suspect);
  if (suspect === undefined) return holders;
  await pace(job.bytes ?? CHUNK_BYTES, signal);
  const isGood = await withVolumeTimeout(suspect.volume.get(kind, job.id, signal)).then(
    (record) => record !== undefined,
    () => false,
  );
  signal.throwIfAborted();
  return isGood ? holders : holders.filter((member) => member !== suspect);
}

/** Assumed size of a record of unknown size. */
const CHUNK_BYTES = 64 * 1024;

/** The next volume that should get a copy; undefined when there are enough copies or no volume is left. */
function nextTarget(set: VolumeSet, job: RepairJob, target: number, holders: readonly Member[]): Member | undefined {
  if (!isUnderReplicated(set, target, holders)) return undefined;
  const kind = job.kind === 'object' ? 'object' : 'content';
  // A volume that claims to hold it but cannot deliver it gains nothing from another copy.
  const isFree = (member: Member): boolean =>
    member.takesRecords && !holders.includes(member) && !member.holdsDurably(kind, job.id);
  const free = set.placement.order(job.id).filter(isFree);
  const active = holders.filter((member) => member.isActive);
  const domains = new Set(active.map((member) => member.domain));
  const elsewhere = free.find((member) => !domains.has(member.domain));
  // A second copy in a domain helps only while there are too few copies.
  return elsewhere ?? (active.length < target ? free[0] : undefined);
}

async function repairContent(init: RepairInit, job: RepairJob, signal: AbortSignal): Promise<RepairResult> {
  const { set, pace, withVolumeTimeout } = init;
  const holders = await goodHolders(init, job, signal);
  const record = await read(init, job, signal);
  if (record === undefined) return 'gone';
  // As a content only: an object of the same bytes may have been removed.
  const type = isObject(record.type) ? RecordType.chunk : record.type;
  let result: RepairResult = 'whole';
  for (;;) {
    const target = nextTarget(set, job, targetOfContent(set, job.id, holders), holders);
    if (target === undefined) return result;
    await pace(record.payload.length, signal);
    await withVolumeTimeout(target.write([{ type, id: job.id, payload: record.payload }], signal));
    await readBack(init, target, 'content', { id: job.id, bytes: record.payload.length }, signal);
    holders.push(target);
    result = 'repaired';
  }
}

/** Paces the assumed size before the read, and the rest after it. */
async function read({ set, pace }: RepairInit, job: RepairJob, signal: AbortSignal): ReturnType<VolumeSet['get']> {
  const paid_bytes = job.bytes ?? CHUNK_BYTES;
  await pace(paid_bytes, signal);
  try {
    const record = await set.get(job.kind === 'object' ? 'object' : 'content', job.id, signal);
    await pace(Math.max(0, (record?.payload.length ?? 0) - paid_bytes), signal);
    return record;
  } catch (error) {
    // No intact copy is left to copy.
    if (isRonError(error, 'integrity')) return undefined;
    throw error;
  }
}

async function repairObject(init: RepairInit, job: RepairJob, signal: AbortSignal): Promise<RepairResult> {
  const { set, pace, withVolumeTimeout } = init;
  const holders = await goodHolders(init, job, signal);
  const record = await read(init, job, signal);
  if (record === undefined) return 'gone';
  let result: RepairResult = 'whole';
  for (;;) {
    const target = nextTarget(set, job, set.targetOf(record.type, job.id), holders);
    if (target === undefined) return result;
    await pace(2 * record.payload.length, signal);
    if (!(await withVolumeTimeout(set.copyObject(job.id, target, signal)))) return 'gone';
    await readBack(init, target, 'object', { id: job.id, bytes: record.payload.length }, signal);
    holders.push(target);
    result = 'repaired';
  }
}

/** A copy counts only once it was read back. An object may have been removed meanwhile. */
async function readBack(
  { set, pace, withVolumeTimeout }: RepairInit,
  target: Member,
  kind: 'content' | 'object',
  { id, bytes }: { id: Uint8Array; bytes: number },
  signal: AbortSignal,
): Promise<void> {
  await pace(bytes, signal);
  const record = await withVolumeTimeout(target.volume.get(kind, id, signal));
  if (record !== undefined || (kind === 'object' && !set.knowsObject(id))) return;
  throw new RonError('integrity', `a copy on ${target.name} could not be read back`);
}

/** Records a stripe on every volume that should know it, and corrects volumes with an outdated layout. */
async function repairLayout(init: RepairInit, { id }: RepairJob, signal: AbortSignal): Promise<RepairResult> {
  const { set } = init;
  return await set.stripes.change(id, signal, async () => {
    const views = await set.stripes.views(id, signal);
    const layout = bestOf(set, views.values());
    if (layout === undefined) return 'gone';
    const members = volumesToUpdate(set, id, layout, views);
    if (members.length === 0) return 'whole';
    await writeLayout(init, layout, members, signal);
    return 'repaired';
  });
}

async function repairShard(init: RepairInit, job: RepairJob, signal: AbortSignal): Promise<RepairResult> {
  const { set } = init;
  const found = await set.stripes.find(job.id, signal);
  if (found === undefined) return 'gone';
  const id = stripeId(found.shards);
  return await set.stripes.change(id, signal, async () => {
    // A concurrent repair may have moved another shard of the stripe.
    const layout = bestOf(set, (await set.stripes.views(id, signal)).values()) ?? found;
    return await keepShard(init, job, layout, signal);
  });
}

/** Writes a shard to its volume, and records the new place. */
async function keepShard(
  init: RepairInit,
  job: RepairJob,
  layout: StripeLayout,
  signal: AbortSignal,
): Promise<RepairResult> {
  const { set, pace, withVolumeTimeout } = init;
  const index = layout.shards.findIndex((shard) => Buffer.compare(shard.id, job.id) === 0);
  if (index < 0) return 'gone';
  const { bytes, home: former } = layout.shards[index]!;
  const holders = await goodHolders(init, { ...job, kind: 'content' }, signal);
  const home = homeFor(set, layout, index, holders);
  if (home === undefined) throw new RonError('not_ready', 'no volume takes records');
  if (home.id === former && holders.includes(home)) return 'whole';
  if (!holders.includes(home)) {
    // It is rebuilt from k others, unless a volume that should not keep it has it.
    await pace((holders.length > 0 ? 1 : layout.data_shards) * bytes, signal);
    const payload = await shardBytes(init, layout, job.id, signal);
    if (payload === undefined) return 'gone';
    await pace(bytes, signal);
    const type = index < layout.data_shards ? RecordType.chunk : RecordType.parity;
    await withVolumeTimeout(home.write([{ type, id: job.id, payload }], signal));
  }
  await readBack(init, home, 'content', { id: job.id, bytes }, signal);
  const shards = layout.shards.map((shard, at) => (at === index ? { ...shard, home: home.id } : shard));
  const moved = { ...layout, shards };
  const id = stripeId(shards);
  const knowing = set.members.filter((each) => each.isWritable && each.holds('stripe', id));
  await writeLayout(init, moved, [...new Set([...knowing, ...knowersOf(set, moved)])], signal);
  return 'repaired';
}

/** Durable once it resolves. A volume that fails does not keep the others from being written. */
async function writeLayout(
  { withVolumeTimeout }: RepairInit,
  layout: StripeLayout,
  members: readonly Member[],
  signal: AbortSignal,
): Promise<void> {
  const record = { type: RecordType.stripe, id: stripeId(layout.shards), payload: encodeStripe(layout) };
  const writes = await Promise.allSettled(members.map((member) => withVolumeTimeout(member.write([record], signal))));
  const failed = writes.find((result) => result.status === 'rejected');
  if (failed !== undefined) throw failed.reason;
}

async function shardBytes(
  init: RepairInit,
  layout: StripeLayout,
  id: Uint8Array,
  signal: AbortSignal,
): Promise<Uint8Array | undefined> {
  try {
    return (await init.set.get('content', id, signal))?.payload;
  } catch (error) {
    const isLost = isRonError(error, 'integrity');
    if (isLost || init.set.away !== undefined) await saveRest(init, layout, signal);
    if (!isLost) throw error;
    return undefined;
  }
}

/**
 * Too few shards of a stripe are left: its remaining data gets copies. The stripe is dissolved only if every volume on the
 * roster has answered: a volume that is away may have the missing shards.
 */
async function saveRest(init: RepairInit, layout: StripeLayout, signal: AbortSignal): Promise<void> {
  const { set } = init;
  const isThere = (id: Uint8Array): boolean => set.members.some((member) => member.holds('content', id));
  for (const { id, bytes } of layout.shards.slice(0, layout.data_shards)) {
    if (isThere(id)) await repairContent(init, { kind: 'content', id, class: 'last', bytes }, signal);
  }
  const lost = layout.shards.filter((shard) => !isThere(shard.id));
  if (set.incomplete !== undefined) return;
  if (lost.some((shard) => set.members.some((member) => member.id === shard.home))) return;
  await set.stripes.end({ id: stripeId(layout.shards), layout }, signal);
}
