/**
 * One walk over the inventories of all volumes: counts missing copies and shards, and files their repair.
 *
 * Contract: last copies are always filed, before anything else; other repairs wait until the queue has room. Deficits of
 * stripes that require a read of the stripe come last.
 * Bound: a page of each inventory in memory. Cancellation: by the signal, between two pages; filed repairs stay filed.
 */
import { isObject, RecordType, type Kind } from '@ron/cas';
import { sched } from '@ron/kernel';
import type { RepairClass } from '@ron/proto';
import { walkIds } from './id-walk.ts';
import type { Member } from '../membership/member.ts';
import type { RepairJob, RepairQueue } from './repair-queue.ts';
import { bestOf, homeFor, isCrowded, volumesToUpdate } from '../stripes/stripe-health.ts';
import { isUnderReplicated, targetOfContent, typeOf } from '../placement/copy-target.ts';
import type { VolumeSet } from '../set/volume-set.ts';

export interface PlanReport {
  /** Records that were examined. */
  readonly records: number;
  /** Of those, the ones with a missing copy or shard. */
  readonly deficit: number;
  readonly deficit_by_class: Readonly<Record<RepairClass, number>>;
  /**
   * Shards that share a volume or a failure domain with another shard of their stripe. Those with a better place are part of
   * the deficit; the others wait for a volume.
   */
  readonly crowded: number;
  /** The fewest copies of any record that no stripe protects; Infinity when there is none. */
  readonly copies_min: number;
  /** Volumes that could not be listed. */
  readonly unreadable: readonly string[];
  /** Whether the walk covered every volume. */
  readonly isComplete: boolean;
}

type Mode = 'all' | 'postponed';

/** The class of a deficit; `shard` if only the stripe can tell the class. */
type Missing = RepairClass | 'shard' | undefined;

export class PlanWalk {
  readonly #set: VolumeSet;
  readonly #queue: RepairQueue;
  readonly #signal: AbortSignal;
  readonly #members: readonly Member[];
  readonly #active: number;
  readonly #unreadable = new Set<string>();
  /** Members that hold a record with too few copies elsewhere. */
  readonly #undrained = new Set<Member>();
  readonly #deficit: Record<RepairClass, number> = { last: 0, rf: 0, parity: 0 };
  readonly #fine = new Map<number, boolean>();
  readonly #changes_total: number;
  /**
   * Members that this walk can find to be drained: they were draining when it began, and no record was being written to them.
   */
  readonly #drainable: readonly Member[];
  #records = 0;
  #crowded = 0;
  #copies_min = Infinity;

  constructor(set: VolumeSet, queue: RepairQueue, signal: AbortSignal) {
    this.#set = set;
    this.#queue = queue;
    this.#signal = signal;
    this.#changes_total = set.lifecycle.changes_total;
    this.#drainable = set.members.filter((member) => member.isDraining && !member.isTakingRecords);
    this.#members = set.members.filter((member) => member.isReadable);
    this.#active = this.#members.reduce((mask, member, index) => (isActive(member) ? mask | (1 << index) : mask), 0);
  }

  get deficit(): number {
    const { last, rf, parity } = this.#deficit;
    return last + rf + parity;
  }

  async run(stripes: 'all' | 'under-replicated'): Promise<PlanReport> {
    const postponed = [await this.#walk('content', 'all'), await this.#walk('object', 'all')];
    for (const [index, kind] of (['content', 'object'] as const).entries()) {
      const from = postponed[index];
      if (from !== undefined) await this.#walk(kind, 'postponed', from.after);
    }
    await this.#walkStripes(stripes);
    const isComplete = this.#unreadable.size === 0;
    if (isComplete) this.#markDrained();
    const { last, rf, parity } = this.#deficit;
    return {
      records: this.#records,
      deficit: this.deficit,
      deficit_by_class: { last, rf, parity },
      crowded: this.#crowded,
      copies_min: this.#copies_min,
      unreadable: [...this.#unreadable],
      isComplete,
    };
  }

  async #walkStripes(which: 'all' | 'under-replicated'): Promise<void> {
    // At least as many as there are parity shards; the stripe itself is examined later.
    const knowers_min = Math.max(1, this.#set.lone_copies - 1);
    await walkIds({
      members: this.#members,
      kind: 'stripe',
      isFine: (holders) => which !== 'all' && bitsOf(holders & this.#active) >= knowers_min,
      visit: (id) => this.#examine(Uint8Array.from(id)),
      onPage: () => sched.pause('repair.plan'),
      onFailure: (member) => void this.#unreadable.add(member.name),
      signal: this.#signal,
    });
  }

  /** Files the deficits of a stripe other than lost shards, which the walk over contents finds. */
  async #examine(id: Uint8Array): Promise<void> {
    const set = this.#set;
    const views = await set.stripes.views(id, this.#signal);
    const layout = bestOf(set, views.values());
    if (layout === undefined) {
      await set.stripes.endRetired(id, this.#signal);
      return;
    }
    if (volumesToUpdate(set, id, layout, views).length > 0) {
      for (const member of views.keys()) if (!isActive(member)) this.#undrained.add(member);
      await this.#fileLater({ kind: 'stripe', id, class: 'rf' });
    }
    for (const index of layout.shards.keys()) {
      const shard = layout.shards[index]!;
      const holders = this.#holdersOf('content', shard.id);
      if (!holders.some(isActive)) continue;
      if (isCrowded(set, layout, index)) this.#crowded += 1;
      const home = homeFor(set, layout, index, holders);
      if (home === undefined || (home.id === shard.home && holders.includes(home))) continue;
      await this.#fileLater({ kind: 'shard', id: shard.id, class: 'parity', bytes: shard.bytes });
    }
  }

  async #fileLater(job: RepairJob): Promise<void> {
    this.#deficit[job.class] += 1;
    await this.#queue.room(this.#signal);
    this.#queue.offer(job);
  }

  /**
   * Not if a volume was added, lost or changed meanwhile, nor with fewer volumes than copies, nor while a volume is away: it
   * may need the records of this one.
   */
  #markDrained(): void {
    const { lifecycle, placement, lone_copies, incomplete } = this.#set;
    if (incomplete !== undefined) return;
    if (lifecycle.changes_total !== this.#changes_total || placement.places.length < lone_copies) return;
    for (const member of this.#drainable) member.apply({ type: this.#undrained.has(member) ? 'recheck' : 'emptied' });
  }

  /**
   * Files missing copies. The first walk skips repairs that are not urgent while the queue is full, and returns the id after
   * which the second walk begins.
   */
  async #walk(
    kind: 'content' | 'object',
    mode: Mode,
    after?: Uint8Array,
  ): Promise<{ after: Uint8Array | undefined } | undefined> {
    let filed: Uint8Array | undefined = after;
    let postponed: { after: Uint8Array | undefined } | undefined;
    await walkIds({
      members: this.#members,
      kind,
      also: kind === 'content' ? 'shard' : undefined,
      after,
      isFine: (holders, also) => {
        if (mode === 'all') this.#records += 1;
        return also === 0 ? this.#isFine(holders) : (holders & this.#active) !== 0;
      },
      visit: (id, _holders, also) => {
        const missing = also === 0 ? this.#copiesClass(kind, id) : this.#shardClass(id);
        if (missing === undefined) return undefined;
        return this.#file(kind, Uint8Array.from(id), missing, mode).then((isFiled) => {
          if (!isFiled) postponed ??= { after: filed };
          filed = Uint8Array.from(id);
        });
      },
      onPage: () => sched.pause('repair.plan'),
      onFailure: (member) => void this.#unreadable.add(member.name),
      signal: this.#signal,
    });
    return postponed;
  }

  /** Whether these volumes suffice for the record. The answer depends on few inputs, so it is cached. */
  #isFine(holders: number): boolean {
    let isFine = this.#fine.get(holders);
    if (isFine === undefined) {
      const members = this.#members.filter((_, index) => (holders & (1 << index)) !== 0);
      isFine = !isUnderReplicated(this.#set, this.#set.lone_copies, members);
      this.#fine.set(holders, isFine);
      if (isFine) this.#copies_min = Math.min(this.#copies_min, members.length);
    }
    return isFine;
  }

  /** A shard needs one copy, on a volume that is not draining. */
  #shardClass(id: Uint8Array): Missing {
    const holders = this.#holdersOf('content', id);
    if (holders.some(isActive)) return undefined;
    for (const member of holders) this.#undrained.add(member);
    return 'shard';
  }

  #copiesClass(kind: 'content' | 'object', id: Uint8Array): Missing {
    const holders = this.#holdersOf(kind, id);
    if (holders.length === 0 || !this.#isNeeded(kind, id, holders)) return undefined;
    const target =
      kind === 'content' ? targetOfContent(this.#set, id, holders) : this.#set.targetOf(RecordType.object, id);
    this.#copies_min = Math.min(this.#copies_min, holders.length);
    if (!isUnderReplicated(this.#set, target, holders)) return undefined;
    if (!holders.every(isActive)) for (const member of holders) this.#undrained.add(member);
    return holders.length < 2 && target > 1 ? 'last' : 'rf';
  }

  /**
   * Objects are examined by the walk over objects. The content of a removed object may be a chunk of others. Parity alone is
   * garbage.
   */
  #isNeeded(kind: 'content' | 'object', id: Uint8Array, holders: readonly Member[]): boolean {
    if (kind === 'object') return this.#set.knowsObject(id);
    const types = holders.map((member) => typeOf(member, id));
    if (types.some(isObject) && this.#set.knowsObject(id)) return false;
    return types.some((type) => type !== RecordType.parity) || this.#set.stripes.lone.has(id);
  }

  /** A record that was written during the walk may be in one inventory and not in another, so it is looked up again. */
  #holdersOf(kind: Kind, id: Uint8Array): Member[] {
    return this.#members.filter((member) => member.holdsDurably(kind, id));
  }

  /** Whether the repair is queued, or was already. */
  async #file(
    kind: 'content' | 'object',
    id: Uint8Array,
    missing: RepairClass | 'shard',
    mode: Mode,
  ): Promise<boolean> {
    const job = await this.#jobOf(kind, id, missing);
    if (mode === 'all') this.#deficit[job.class] += 1;
    if (job.class !== 'last') {
      if (mode === 'all' && !this.#queue.hasRoom) return false;
      await this.#queue.room(this.#signal);
    }
    // The queue is full of equally urgent repairs: the second walk files this one.
    while (this.#queue.offer(job) === 'skipped') await this.#queue.room(this.#signal);
    return true;
  }

  async #jobOf(kind: 'content' | 'object', id: Uint8Array, missing: RepairClass | 'shard'): Promise<RepairJob> {
    if (missing !== 'shard') {
      const bytes = (await this.#holdersOf(kind, id)[0]?.volume.held(kind, id))?.payload_bytes;
      return { kind, id, class: missing, ...(bytes !== undefined && { bytes }) };
    }
    const layout = await this.#set.stripes.find(id, this.#signal);
    const index = layout?.shards.findIndex((shard) => Buffer.compare(shard.id, id) === 0) ?? -1;
    const isData = index >= 0 && index < layout!.data_shards;
    return { kind: 'shard', id, class: isData ? 'last' : 'parity' };
  }
}

const isActive = (member: Member): boolean => member.isActive;

function bitsOf(mask: number): number {
  let count = 0;
  for (let rest = mask; rest !== 0; rest &= rest - 1) count += 1;
  return count;
}
