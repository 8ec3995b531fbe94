/**
 * Several volumes that are used as one.
 *
 * Contract: a put is acknowledged once `write_min` volumes have it durably, in as many failure domains as possible. A volume that
 * fails, is full or read-only is replaced by the next one in the order of the placement. A new object is visible from then on,
 * or once its put has ended. A read continues with another copy, or rebuilds from a stripe, within the same call, and reports the
 * fault. Removed objects do not return with a volume that was absent. While one volume works, its records can be read.
 * Bound: a put waits at most `lag_ms` for a slow volume once enough have it. The bounds of the volumes apply to each.
 * Overflow: `storage_full` or `not_ready` when fewer than `write_min` took it. Cancellation: by the signals given; a cancelled
 * write may be stored or not.
 */
import {
  chunkKey,
  isObject,
  Leases,
  newVolumeId,
  RecordType,
  type Held,
  type Kind,
  type NewRecord,
  type Reclaimed,
  type ReclaimInit,
  type StoredRecord,
  type Volume,
  type VolumeState,
  type VolumeStats,
} from '@ron/cas';
import { assert, isRonError, NEVER, RonError, sleep } from '@ron/kernel';
import { ID_BYTES } from '@ron/log';
import { Completeness, isAway } from '../membership/completeness.ts';
import { mergeInventories } from '../repair/inventories.ts';
import type { Member, MemberInit, MemberView } from '../membership/member.ts';
import type { Membership } from '../membership/membership.ts';
import { isObjectHere, isObjectPinned, isRemoved } from './object-state.ts';
import type { Placement } from '../placement/placement.ts';
import type { Batch } from './read-many.ts';
import { reclaimSet } from '../repair/reclaim-set.ts';
import { reconcile } from '../membership/reconcile.ts';
import { Removals } from './removals.ts';
import { SetLifecycle } from '../lifecycle/set-lifecycle.ts';
import { SetReader } from './set-reader.ts';
import { SetWriter } from './set-writer.ts';
import { Stripes } from '../stripes/stripes.ts';

export interface VolumeSetInit {
  members: readonly MemberInit[];
  /** Default: `set`. */
  name?: string;
  /** Copies of each record. Default 1. */
  replication_factor?: number;
  /**
   * Copies of records that no stripe can protect: objects of one record, manifests and their pages, and the chunks in
   * `stripes.lone`. With stripes, one more than parity shards: then every record survives the same loss as a stripe.
   * Default: the replication factor.
   */
  lone_copies?: number;
  /** Durable copies before a put is acknowledged. Default: the replication factor. */
  write_min?: number;
  /** How long a put waits for a volume once enough others have it. Default 1 s. */
  lag_ms?: number;
  /** How long a read waits for a volume if another one could deliver the record. Default 1 s. */
  read_lag_ms?: number;
  /** Called for each record that a volume failed to deliver. Must not throw. */
  onFault?: (fault: Fault) => void;
  /** Called for each lost volume. Must not throw. */
  onLost?: (name: string, reason: string) => void;
  signal: AbortSignal;
}

/** A record that is missing or damaged somewhere. */
export interface Fault {
  readonly kind: Kind;
  readonly id: Uint8Array;
  /** The id of the volume. */
  readonly volume: string;
  readonly reason: string;
}

const LAG_MS = 1000;
const READ_LAG_MS = 1000;
/** How often a copy of an object's record is repeated because the record was replaced meanwhile. */
const COPY_ATTEMPTS_MAX = 64;
const COPY_AGAIN_MS = 20;
const OK: VolumeState = { condition: 'ok', reason: '' };

export class VolumeSet implements Volume {
  readonly id = newVolumeId();
  readonly name: string;
  readonly domain: string;
  /** A volume that lags behind may still be writing when enough others have it. */
  readonly isDoneWithPayloads = false;
  readonly replication_factor: number;
  readonly write_min: number;
  readonly lone_copies: number;
  /** Needed contents without a reference yet: those of stripes and copies that are being made. */
  readonly holds = new Leases();
  readonly removals = new Removals();
  readonly stripes: Stripes;
  /** Adds, drains, loses and removes its volumes. */
  readonly lifecycle: SetLifecycle;
  readonly completeness = new Completeness(this);
  isDegradedAccepted = false;
  readonly #writer: SetWriter;
  readonly #reader: SetReader;
  readonly #onFault: ((fault: Fault) => void) | undefined;

  private constructor(init: VolumeSetInit, shape: Shape, lifecycle: SetLifecycle) {
    this.name = init.name ?? 'set';
    this.domain = this.name;
    this.replication_factor = shape.replication_factor;
    this.write_min = shape.write_min;
    this.lone_copies = shape.lone_copies;
    this.lifecycle = lifecycle;
    this.#writer = new SetWriter(this, init.lag_ms ?? LAG_MS);
    this.#reader = new SetReader(this, init.read_lag_ms ?? READ_LAG_MS);
    this.#onFault = init.onFault;
    this.stripes = new Stripes(this);
  }

  static async open(init: VolumeSetInit): Promise<VolumeSet> {
    const shape = shapeOf(init);
    const lifecycle = await SetLifecycle.open({ ...init, copies: shape.lone_copies });
    return new VolumeSet(init, shape, lifecycle);
  }

  get members(): readonly Member[] {
    return this.lifecycle.members;
  }

  get placement(): Placement<Member> {
    return this.lifecycle.placement;
  }

  get membership(): Membership {
    return this.lifecycle.membership;
  }

  /** The members, for operators. */
  get views(): readonly MemberView[] {
    return this.members.map((member) => member.view);
  }

  /** Ok while enough volumes take writes. */
  get state(): VolumeState {
    const writable = this.members.filter((member) => member.takesRecords && member.failure === undefined);
    if (writable.length >= this.write_min) return OK;
    const broken = this.views.filter((view) => view.condition !== 'ok');
    const condition = broken.find((view) => view.condition === 'full')?.condition ?? broken[0]?.condition ?? 'failed';
    const reason = broken.map((view) => view.reason).join('; ');
    return { condition, reason: reason || `${writable.length} volumes are left, ${this.write_min} are needed` };
  }

  get incomplete(): string | undefined {
    return this.completeness.reason();
  }

  get away(): string | undefined {
    const { away } = this.completeness;
    return away.length === 0 ? undefined : isAway(away);
  }

  get absenceDoubt(): string | undefined {
    return this.completeness.absenceDoubt;
  }

  get changes_total(): number {
    return this.lifecycle.changes_total;
  }

  get lastChange(): string {
    return this.lifecycle.lastChange;
  }

  member(key: string): Member {
    return this.lifecycle.member(key);
  }

  /** Reconciles volumes that were absent, are new or lost records. Returns how many succeeded. */
  async reconcileStale(signal: AbortSignal): Promise<number> {
    let reconciled = 0;
    // Unverified volumes come last: they are compared once all others are current.
    for (const member of this.members.toSorted((a, b) => Number(a.isCurrent) - Number(b.isCurrent))) {
      if (!this.completeness.isDue(member) || !member.isWritable || !this.members.includes(member)) continue;
      try {
        await reconcile(this, member, signal);
        reconciled += 1;
      } catch {
        // It stays stale, and is reconciled by a later call.
        signal.throwIfAborted();
      }
    }
    return reconciled;
  }

  put(records: readonly NewRecord[], signal: AbortSignal, durability: 'now' | 'later' = 'now'): Promise<void> {
    return this.#writer.put(records, signal, durability);
  }

  /** A record on a volume that fails to sync has too few copies, which `isDurable` reports. */
  sync(signal: AbortSignal, needed: readonly Uint8Array[] = []): Promise<void> {
    return this.#writer.sync(signal, needed);
  }

  isDurable(kind: Kind, id: Uint8Array): boolean {
    if (kind === 'object' && !this.has('object', id)) return false;
    const copies = this.copiesOf(kind, id);
    return copies >= this.write_min || (kind === 'content' && copies > 0 && this.stripes.secures(id));
  }

  /** The intended number of copies of a record that no stripe protects. */
  targetOf(type: number, id: Uint8Array): number {
    const isLone = isObject(type) || type === RecordType.page || this.stripes.lone.has(id);
    return isLone ? this.lone_copies : this.replication_factor;
  }

  /** On how many volumes it is durable. */
  copiesOf(kind: Kind, id: Uint8Array): number {
    let copies = 0;
    for (const member of this.members) if (member.holdsDurably(kind, id)) copies += 1;
    return copies;
  }

  async get(kind: Kind, id: Uint8Array, signal: AbortSignal): Promise<StoredRecord | undefined> {
    if (kind === 'object' && !this.has('object', id)) return undefined;
    return await this.#reader.get(kind, id, signal);
  }

  allHaveMeta(id: Uint8Array, meta: Uint8Array, signal: AbortSignal): Promise<boolean> {
    return this.#reader.allHaveMeta(id, meta, signal);
  }

  getNow(kind: Kind, id: Uint8Array): StoredRecord | undefined {
    if (kind === 'object' && !this.has('object', id)) return undefined;
    return this.#reader.getNow(kind, id);
  }

  getMany(ids: readonly Uint8Array[], signal: AbortSignal): AsyncGenerator<Batch, void, void> {
    return this.#reader.getMany(ids, signal);
  }

  has(kind: Kind, id: Uint8Array): boolean {
    if (kind === 'object') return this.knowsObject(id) && !this.#isHidden(id);
    if (this.members.some((member) => member.holds(kind, id))) return true;
    return kind === 'content' && this.stripes.protects(id);
  }

  /** Like `has('object', id)`, but including an object whose first put is under way. For decisions about stored copies. */
  knowsObject(id: Uint8Array): boolean {
    return isObjectHere(this.members, id);
  }

  #isHidden(id: Uint8Array): boolean {
    return this.#writer.isFirstPut(id) && this.copiesOf('object', id) < this.write_min;
  }

  isPinned(id: Uint8Array): boolean {
    return isObjectPinned(this.members, id);
  }

  wasRemoved(id: Uint8Array): boolean {
    return !this.has('object', id) && isRemoved(this.members, id);
  }

  typeOf(kind: Kind, id: Uint8Array): number | undefined {
    if (kind === 'object' && !this.has('object', id)) return undefined;
    return this.holdersOf(kind, id)[0]?.volume.typeOf(kind, id);
  }

  async putTime_s(kind: Kind, id: Uint8Array): Promise<number | undefined> {
    const readable = this.members.filter((member) => member.isReadable);
    const times = await Promise.all(readable.map((member) => member.volume.putTime_s(kind, id)));
    const known = times.filter((time) => time !== undefined);
    return known.length === 0 ? undefined : Math.max(...known);
  }

  async inventory(kind: Kind, after: Uint8Array | undefined, count: number): Promise<Held[]> {
    const held: Held[] = [];
    const members = this.members.filter((member) => member.isReadable);
    await mergeInventories({ members, kind, after, page_count: count, signal: NEVER }, (line) => {
      if (kind === 'object' && !this.has('object', line.held.id)) return undefined;
      held.push(line.held);
      return held.length < count ? undefined : false;
    });
    return held;
  }

  async listIds(kind: Kind, after: Uint8Array | undefined, into: Buffer): Promise<number> {
    const held = await this.inventory(kind, after, Math.floor(into.length / ID_BYTES));
    for (const [at, { id }] of held.entries()) into.set(id, at * ID_BYTES);
    return held.length;
  }

  async held(kind: Kind, id: Uint8Array): Promise<Held | undefined> {
    if (kind === 'object' && !this.has('object', id)) return undefined;
    return await this.holdersOf(kind, id)[0]?.volume.held(kind, id);
  }

  /** Reclaims space on each volume, one after the other, including surplus copies. */
  reclaim(init: ReclaimInit): Promise<Reclaimed> {
    return reclaimSet(this, init);
  }

  stats(): VolumeStats {
    const all = this.members.filter((member) => member.isReadable).map((member) => member.volume.stats());
    const sum = (of: (stats: VolumeStats) => number): number => all.reduce((total, stats) => total + of(stats), 0);
    return {
      used_bytes: sum((stats) => stats.used_bytes),
      segments: sum((stats) => stats.segments),
      contents: sum((stats) => stats.contents),
    };
  }

  async close(): Promise<void> {
    await Promise.all(this.members.map((member) => member.volume.close()));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /**
   * The volumes that hold it, in an order that depends on the id, to spread the load. For the record of an object current
   * volumes come first: stale ones may have an older media type.
   */
  holdersOf(kind: Kind, id: Uint8Array): Member[] {
    const all = this.members.filter((member) => member.holds(kind, id));
    if (all.length < 2) return all;
    if (kind !== 'object') return rotated(all, id);
    const [current, stale] = [all.filter((each) => each.isCurrent), all.filter((each) => !each.isCurrent)];
    return [...rotated(current, id), ...rotated(stale, id)];
  }

  /** Copies an object's record to a volume, unless it is removed meanwhile. False when there was none to copy. */
  async copyObject(id: Uint8Array, target: Member, signal: AbortSignal): Promise<boolean> {
    for (let attempt = 0; attempt < COPY_ATTEMPTS_MAX; attempt++) {
      using watch = this.removals.watch(chunkKey(id), 'old');
      const record = this.knowsObject(id) ? await this.#reader.get('object', id, signal, target) : undefined;
      // In one step with the write: a later removal is ordered after it.
      if (record === undefined || watch.isRemoved || !this.knowsObject(id)) return false;
      const pin = { type: RecordType.pin, id, payload: new Uint8Array(0) };
      await target.write(this.isPinned(id) ? [{ ...record, id }, pin] : [{ ...record, id }], signal);
      if (!watch.isReplaced) return true;
      // A replacement misses a copy that is being written: copy again once it has ended.
      await sleep(COPY_AGAIN_MS, signal, 'copy_object');
    }
    throw new RonError('conflict', 'the object is being replaced repeatedly');
  }

  /** Reports a record that a volume failed to deliver. */
  fault(kind: Kind, id: Uint8Array, volume: Volume, error: unknown): void {
    // Damage concerns one record; any other failure may concern the disk, and the next read would wait as well.
    if (!isRonError(error, 'integrity')) this.members.find((member) => member.volume === volume)?.readFailed();
    const reason = error instanceof Error ? error.message : String(error);
    // A copy that makes a drained volume removable may be gone.
    this.lifecycle.recheckDrained();
    this.#onFault?.({ kind, id, volume: volume.id, reason });
  }
}

/** Rotates by the id; slow volumes come last. */
function rotated(holders: readonly Member[], id: Uint8Array): Member[] {
  const first = (id[31] ?? 0) % Math.max(1, holders.length);
  const order = [...holders.slice(first), ...holders.slice(0, first)];
  if (!order.some((member) => member.isSlow)) return order;
  return [...order.filter((member) => !member.isSlow), ...order.filter((member) => member.isSlow)];
}

type Shape = Required<Pick<VolumeSetInit, 'replication_factor' | 'write_min' | 'lone_copies'>>;

function shapeOf(init: VolumeSetInit): Shape {
  const { replication_factor = 1 } = init;
  const { write_min = replication_factor } = init;
  assert(write_min >= 1 && write_min <= replication_factor, '1 <= write_min <= replication_factor');
  return { replication_factor, write_min, lone_copies: Math.max(replication_factor, init.lone_copies ?? 0) };
}
