/**
 * Several volumes that are used as one.
 *
 * Promise: a put is acknowledged when `write_min` volumes have it durably, in as many failure domains as there are; one that
 * fails, is full or read-only is replaced by the next in the order of its placement. A read goes on with another copy,
 * or with what a stripe gives, inside of the same call, and somebody is told. What was removed does not come back with a
 * volume that was away. While one volume works, reads of what it has work.
 * Bound: a put waits for a slow volume `lag_ms` at most when enough have it. The bounds of the volumes hold for each.
 * Overflow: `storage_full` or `not_ready` when fewer than `write_min` took it. Cancellation: by the signals given; what
 * was written until then may be there or not.
 */
import {
  chunkKey,
  isObject,
  Leases,
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
import { assert, NEVER, RonError } from '@ron/kernel';
import { ID_BYTES } from '@ron/log';
import { mergeInventories } from './inventories.ts';
import { Member, type MemberInit, type MemberView } from './member.ts';
import { Membership } from './membership.ts';
import { isObjectHere, isObjectPinned, isRemoved } from './object-words.ts';
import { LATE, within } from './patience.ts';
import { Placement } from './placement.ts';
import { readMany, type Batch } from './read-many.ts';
import { reclaimSet } from './reclaim-set.ts';
import { reconcile } from './reconcile.ts';
import { Removals } from './removals.ts';
import { SetWriter } from './set-writer.ts';
import { Stripes } from './stripes.ts';

export interface VolumeSetInit {
  members: readonly MemberInit[];
  /** Default: `set`. */
  name?: string;
  /** Copies of each record. Default 1. */
  replication_factor?: number;
  /**
   * Copies of what no stripe can protect, when they are to be more: objects of one record, manifests and their pages, and
   * chunks that `stripes.lone` names. With stripes, one more than parity shards: then everything survives what a stripe
   * survives. Default: the replication factor.
   */
  lone_copies?: number;
  /** Copies that are durable before a put is acknowledged. Default: the replication factor. */
  write_min?: number;
  /** How long a put waits for a volume when enough others have it. Default 1 s. */
  lag_ms?: number;
  /** How long a read waits for a volume when another one could give it. Default 1 s. */
  read_lag_ms?: number;
  /** Told of a record that a volume did not give though it should have it. Must not throw. */
  onFault?: (fault: Fault) => void;
  /** Told of each volume that is lost. Must not throw. */
  onLost?: (name: string, reason: string) => void;
  signal: AbortSignal;
}

/** A record that is missing or damaged somewhere. */
export interface Fault {
  readonly kind: Kind;
  readonly id: Uint8Array;
  readonly volume: string;
  readonly reason: string;
}

/** How well something is kept. */
export interface DurabilityReceipt {
  /** Always: nothing is acknowledged before. */
  readonly fsynced: true;
  readonly copies: number;
  readonly target: number;
}

const LAG_MS = 1000;
const READ_LAG_MS = 1000;
const OK: VolumeState = { condition: 'ok', reason: '' };

export class VolumeSet implements Volume {
  readonly name: string;
  readonly domain: string;
  /** A volume that lags behind may still be writing when enough others have it. */
  readonly isDoneWithPayloads = false;
  readonly replication_factor: number;
  readonly write_min: number;
  readonly lone_copies: number;
  /** Contents that nobody names yet, and that are needed: stripes that are being made, copies on their way. */
  readonly holds = new Leases();
  readonly removals = new Removals();
  readonly stripes: Stripes;
  readonly #writer: SetWriter;
  readonly #read_lag_ms: number;
  readonly #onFault: ((fault: Fault) => void) | undefined;
  readonly #onLost: ((name: string, reason: string) => void) | undefined;
  #members: readonly Member[];
  #placement: Placement<Member>;
  #membership!: Membership;
  #changes_total = 0;

  private constructor(init: VolumeSetInit) {
    this.name = init.name ?? 'set';
    this.domain = this.name;
    this.replication_factor = init.replication_factor ?? 1;
    this.write_min = init.write_min ?? this.replication_factor;
    assert(this.write_min >= 1 && this.write_min <= this.replication_factor, '1 <= write_min <= replication_factor');
    this.lone_copies = Math.max(this.replication_factor, init.lone_copies ?? 0);
    this.#writer = new SetWriter(this, init.lag_ms ?? LAG_MS);
    this.#read_lag_ms = init.read_lag_ms ?? READ_LAG_MS;
    this.#onFault = init.onFault;
    this.#onLost = init.onLost;
    this.#members = init.members.map((each) => this.#memberOf(each));
    this.#placement = this.#place();
    this.stripes = new Stripes(this);
  }

  static async open(init: VolumeSetInit): Promise<VolumeSet> {
    const set = new VolumeSet(init);
    set.#requireNames();
    set.#membership = await Membership.open(() => set.#members, init.signal);
    return set;
  }

  get members(): readonly Member[] {
    return this.#members;
  }

  get placement(): Placement<Member> {
    return this.#placement;
  }

  get membership(): Membership {
    return this.#membership;
  }

  /** How often volumes came, went or changed what they are for. */
  get changes_total(): number {
    return this.#changes_total;
  }

  /** The set as people want to see it. */
  get views(): readonly MemberView[] {
    return this.#members.map((member) => member.view);
  }

  /** Ok while a write would find enough volumes. */
  get state(): VolumeState {
    const writable = this.#members.filter((member) => member.takesRecords && member.failure === undefined);
    if (writable.length >= this.write_min) return OK;
    const broken = this.views.filter((view) => view.condition !== 'ok');
    const condition = broken.find((view) => view.condition === 'full')?.condition ?? broken[0]?.condition ?? 'failed';
    const reason = broken.map((view) => view.reason).join('; ');
    return { condition, reason: reason || `${writable.length} volumes are left, ${this.write_min} are needed` };
  }

  member(name: string): Member {
    const member = this.#members.find((each) => each.name === name);
    if (member === undefined) throw new RonError('not_found', `there is no volume ${name}`);
    return member;
  }

  /** Takes a volume in: a new one, one that was away, or one in the place of another. `settle` tells it what it missed. */
  add(init: MemberInit): Member {
    const member = this.#memberOf(init);
    const former = this.#members.find((each) => each.name === member.name);
    if (former?.isReadable === true) throw new RonError('conflict', `there is a volume ${member.name} already`);
    // What it heard and what not is known when it has been asked.
    member.isCurrent = false;
    this.#change([...this.#members.filter((each) => each !== former), member]);
    return member;
  }

  /** Gives it nothing more; the planner moves what it has. */
  drain(name: string): void {
    const member = this.member(name);
    if (member.life === 'lost') throw new RonError('conflict', `${name} is lost: remove it`);
    member.life = 'draining';
    member.isDrained = false;
    this.#change(this.#members);
  }

  /** Expects nothing of it any more. What it had is repaired from elsewhere. */
  lose(name: string, reason: string): void {
    this.member(name).lose(reason);
    this.#change(this.#members);
    this.#onLost?.(name, reason);
  }

  /** Lets a volume go that is drained or lost; `force` also one that may hold the last copy of something. */
  async remove(name: string, init: { force?: boolean } = {}): Promise<void> {
    const member = this.member(name);
    const isFree = member.life === 'lost' || (member.life === 'draining' && member.isDrained);
    if (!isFree && init.force !== true) throw new RonError('conflict', `${name} may hold last copies: drain it first`);
    this.#change(this.#members.filter((each) => each !== member));
    await member.volume.close();
  }

  /** Tells volumes that were away, or are new, what they missed. How many could be told. */
  async settle(signal: AbortSignal): Promise<number> {
    let told = 0;
    for (const member of this.#members) {
      if (member.isCurrent || !member.isWritable) continue;
      try {
        await reconcile(this, member, signal);
        told += 1;
      } catch {
        // It stays stale, and is told another time.
        signal.throwIfAborted();
      }
    }
    return told;
  }

  put(records: readonly NewRecord[], signal: AbortSignal, durability: 'now' | 'later' = 'now'): Promise<void> {
    return this.#writer.put(records, signal, durability);
  }

  /** A volume that cannot sync is told by `isDurable`: what it was to keep has too few copies then. */
  sync(signal: AbortSignal): Promise<void> {
    return this.#writer.sync(signal);
  }

  isDurable(kind: Kind, id: Uint8Array): boolean {
    if (kind === 'object' && !this.has('object', id)) return false;
    const copies = this.copiesOf(kind, id);
    return copies >= this.write_min || (kind === 'content' && copies > 0 && this.stripes.secures(id));
  }

  /** How many copies there are to be of a record that no stripe protects. */
  targetOf(type: number, id: Uint8Array): number {
    const isLone = isObject(type) || type === RecordType.page || this.stripes.lone.has(id);
    return isLone ? this.lone_copies : this.replication_factor;
  }

  /** On how many volumes it is durable. */
  copiesOf(kind: Kind, id: Uint8Array): number {
    let copies = 0;
    for (const member of this.#members) if (member.holdsDurably(kind, id)) copies += 1;
    return copies;
  }

  /** For an object that was put: of each of its parts there are at least `write_min` copies, of its own record these. */
  receiptOf(id: Uint8Array): DurabilityReceipt {
    return { fsynced: true, copies: this.copiesOf('object', id), target: this.lone_copies };
  }

  async get(kind: Kind, id: Uint8Array, signal: AbortSignal): Promise<StoredRecord | undefined> {
    if (kind === 'object' && !this.has('object', id)) return undefined;
    const failures: unknown[] = [];
    const tried = new Set<Member>();
    // Asked anew each time: while one was read, it may have been moved to another.
    for (let member = this.#untried(kind, id, tried); member !== undefined; member = this.#untried(kind, id, tried)) {
      tried.add(member);
      const isLast = this.#untried(kind, id, tried) === undefined && !(kind === 'content' && this.stripes.protects(id));
      try {
        const read = member.volume.get(kind, id, signal);
        const record = isLast ? await read : await within(read, this.#read_lag_ms);
        if (record === LATE) throw new RonError('timeout', `${member.name} took too long`, { op: 'read' });
        if (record !== undefined) return record;
      } catch (error) {
        signal.throwIfAborted();
        failures.push(error);
        this.fault(kind, id, member.volume, error);
      }
    }
    const rebuilt = kind === 'content' ? await this.stripes.rebuild(id, signal) : undefined;
    if (rebuilt !== undefined) return { type: RecordType.chunk, payload: rebuilt, meta: new Uint8Array(0) };
    if (failures.length > 0) throw failures[0];
    return undefined;
  }

  getNow(kind: Kind, id: Uint8Array): StoredRecord | undefined {
    if (kind === 'object' && !this.has('object', id)) return undefined;
    for (const member of this.holdersOf(kind, id)) {
      const record = member.volume.getNow?.(kind, id);
      if (record !== undefined) return record;
    }
    return undefined;
  }

  getMany(ids: readonly Uint8Array[], signal: AbortSignal): AsyncGenerator<Batch, void, void> {
    return readMany({
      ids,
      holderOf: (id) => this.holdersOf('content', id)[0]?.volume,
      fallback: async (id) => {
        const record = await this.get('content', id, signal);
        if (record === undefined) throw new RonError('not_found', `${this.name} does not hold it`);
        return record.payload;
      },
      rescue: (id) => this.stripes.rescue(id, signal),
      lag_ms: this.#read_lag_ms,
      onFailure: (volume, id, error) => this.fault('content', id, volume, error),
      signal,
    });
  }

  has(kind: Kind, id: Uint8Array): boolean {
    if (kind === 'object') return isObjectHere(this.#members, id);
    if (this.#members.some((member) => member.holds(kind, id))) return true;
    return kind === 'content' && this.stripes.protects(id);
  }

  isPinned(id: Uint8Array): boolean {
    return isObjectPinned(this.#members, id);
  }

  wasRemoved(id: Uint8Array): boolean {
    return !this.has('object', id) && isRemoved(this.#members, id);
  }

  putTime_s(kind: Kind, id: Uint8Array): number | undefined {
    const times = this.#members.flatMap((member) =>
      member.isReadable ? (member.volume.putTime_s(kind, id) ?? []) : [],
    );
    return times.length === 0 ? undefined : Math.max(...times);
  }

  async inventory(kind: Kind, after: Uint8Array | undefined, count: number): Promise<Held[]> {
    const held: Held[] = [];
    const members = this.#members.filter((member) => member.isReadable);
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

  held(kind: Kind, id: Uint8Array): Held | undefined {
    if (kind === 'object' && !this.has('object', id)) return undefined;
    return this.holdersOf(kind, id)[0]?.volume.held(kind, id);
  }

  /** Each volume gives back its room, one after the other: also that of copies which others have in its place. */
  reclaim(init: ReclaimInit): Promise<Reclaimed> {
    return reclaimSet(this, init);
  }

  stats(): VolumeStats {
    const all = this.#members.filter((member) => member.isReadable).map((member) => member.volume.stats());
    const sum = (of: (stats: VolumeStats) => number): number => all.reduce((total, stats) => total + of(stats), 0);
    return { used_bytes: sum((stats) => stats.used_bytes), segments: sum((stats) => stats.segments) };
  }

  async close(): Promise<void> {
    await Promise.all(this.#members.map((member) => member.volume.close()));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Who has it, each id beginning with another one, so that all share the work. */
  holdersOf(kind: Kind, id: Uint8Array): Member[] {
    const holders = this.#members.filter((member) => member.holds(kind, id));
    if (holders.length < 2) return holders;
    const first = (id[31] ?? 0) % holders.length;
    return [...holders.slice(first), ...holders.slice(0, first)];
  }

  /** Puts a copy of an object on a volume, unless it is removed meanwhile. Whether there was one to copy. */
  async copyObject(id: Uint8Array, target: Member, signal: AbortSignal): Promise<boolean> {
    using watch = this.removals.watch(chunkKey(id), 'old');
    const record = await this.get('object', id, signal);
    // In one step with the write: a removal that is decided after this is ordered after it.
    if (record === undefined || watch.isRemoved || !this.has('object', id)) return false;
    const pin = { type: RecordType.pin, id, payload: new Uint8Array(0) };
    await target.write(this.isPinned(id) ? [{ ...record, id }, pin] : [{ ...record, id }], signal);
    return true;
  }

  #untried(kind: Kind, id: Uint8Array, tried: ReadonlySet<Member>): Member | undefined {
    return this.holdersOf(kind, id).find((member) => !tried.has(member));
  }

  /** One that a write finds gone is lost at once, unless it is the only one: then there is nowhere else to look. */
  #memberOf(init: MemberInit): Member {
    const member: Member = new Member(init, (reason) => {
      // Its name may be another one's by now.
      if (this.#members.length > 1 && this.#members.includes(member)) this.lose(member.name, reason);
    });
    return member;
  }

  #requireNames(): void {
    const names = new Set(this.#members.map((member) => member.name));
    assert(names.size === this.#members.length, 'volumes of a set have different names');
  }

  #change(members: readonly Member[]): void {
    this.#changes_total += 1;
    this.#members = members;
    this.#placement = this.#place();
  }

  #place(): Placement<Member> {
    return new Placement(this.#members.filter((member) => member.life === 'active'));
  }

  /** Tells of a record that a volume should have given. */
  fault(kind: Kind, id: Uint8Array, volume: Volume, error: unknown): void {
    const reason = error instanceof Error ? error.message : String(error);
    this.#onFault?.({ kind, id, volume: volume.name, reason });
  }
}
