/**
 * One walk over the inventories of all volumes: files what is missing, and counts it.
 *
 * Promise: last copies are filed in any case and before anything else; others wait until there is room. What stripes lack
 * besides shards that no volume has comes last: it has to be read.
 * Bound: a page of each inventory in memory. Cancellation: by the signal, between two pages; what was filed stays filed.
 */
import { isObject, RecordType, type Kind } from '@ron/cas';
import { sched } from '@ron/kernel';
import type { RepairClass } from '@ron/proto';
import { walkIds } from './id-walk.ts';
import type { Member } from '../membership/member.ts';
import type { RepairJob, RepairQueue } from './repair-queue.ts';
import { bestOf, homeFor, isCrowded, untold } from '../stripes/stripe-health.ts';
import { lacks, targetOfContent, typeOf } from '../placement/wanted.ts';
import type { VolumeSet } from '../set/volume-set.ts';

export interface PlanReport {
  /** Records that were looked at. */
  readonly records: number;
  /** Of those, the ones that lack something. */
  readonly deficit: number;
  readonly deficit_by_class: Readonly<Record<RepairClass, number>>;
  /**
   * Shards that lie on one volume, or in one failure domain, with another of their stripe. Those for which there is a better
   * place are part of the deficit; the others have to wait for a volume.
   */
  readonly crowded: number;
  /** The fewest copies of any record that no stripe protects; Infinity when there is none. */
  readonly copies_min: number;
  /** Volumes that could not be listed. */
  readonly unreadable: readonly string[];
  /** It went through everything. */
  readonly isComplete: boolean;
}

type Mode = 'all' | 'postponed';

/** What is missing, and in what class; `shard` when that is known only after a look at the stripe. */
type Missing = RepairClass | 'shard' | undefined;

export class PlanWalk {
  readonly #set: VolumeSet;
  readonly #queue: RepairQueue;
  readonly #signal: AbortSignal;
  readonly #members: readonly Member[];
  readonly #active: number;
  readonly #unreadable = new Set<string>();
  /** Members that hold something which others do not hold enough of. */
  readonly #undrained = new Set<Member>();
  readonly #deficit: Record<RepairClass, number> = { last: 0, rf: 0, parity: 0 };
  readonly #fine = new Map<number, boolean>();
  readonly #changes_total: number;
  /** Those that this walk can find to be empty: they were to be emptied when it began, and nothing was on its way there. */
  readonly #drainable: readonly Member[];
  #records = 0;
  #crowded = 0;
  #copies_min = Infinity;

  constructor(set: VolumeSet, queue: RepairQueue, signal: AbortSignal) {
    this.#set = set;
    this.#queue = queue;
    this.#signal = signal;
    this.#changes_total = set.life.changes_total;
    this.#drainable = set.members.filter((member) => member.life === 'draining' && !member.isTakingRecords);
    this.#members = set.members.filter((member) => member.isReadable);
    this.#active = this.#members.reduce((mask, member, index) => (isActive(member) ? mask | (1 << index) : mask), 0);
  }

  get deficit(): number {
    const { last, rf, parity } = this.#deficit;
    return last + rf + parity;
  }

  async run(stripes: 'all' | 'those too few know'): Promise<PlanReport> {
    const postponed = [await this.#walk('content', 'all'), await this.#walk('object', 'all')];
    for (const [index, kind] of (['content', 'object'] as const).entries()) {
      const from = postponed[index];
      if (from !== undefined) await this.#walk(kind, 'postponed', from.after);
    }
    await this.#walkStripes(stripes);
    const isComplete = this.#unreadable.size === 0;
    if (isComplete) this.#tellDrained();
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

  async #walkStripes(which: 'all' | 'those too few know'): Promise<void> {
    // As many as there are parity shards; what a stripe has itself is known when it is looked at.
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

  /** Files the deficits of a stripe besides shards that no volume has: those are found among the contents. */
  async #examine(id: Uint8Array): Promise<void> {
    const set = this.#set;
    const views = await set.stripes.views(id, this.#signal);
    const layout = bestOf(set, views.values());
    if (layout === undefined) {
      await set.stripes.endRetired(id, this.#signal);
      return;
    }
    if (untold(set, id, layout, views).length > 0) {
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
   * Not when a volume came, went or changed meanwhile, nor when there are fewer volumes than copies, nor while a volume is
   * away: it may know what the records on this one are for.
   */
  #tellDrained(): void {
    const { life, placement, lone_copies, incomplete } = this.#set;
    if (incomplete !== undefined) return;
    if (life.changes_total !== this.#changes_total || placement.places.length < lone_copies) return;
    for (const member of this.#drainable) member.isDrained = !this.#undrained.has(member);
  }

  /**
   * Files what is missing. The first time what is not urgent is left out when there is no room; returns the id after which
   * the second walk is to begin then.
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

  /** Whether these volumes are enough for whatever it is. There are far fewer answers than ids. */
  #isFine(holders: number): boolean {
    let isFine = this.#fine.get(holders);
    if (isFine === undefined) {
      const members = this.#members.filter((_, index) => (holders & (1 << index)) !== 0);
      isFine = !lacks(this.#set, this.#set.lone_copies, members);
      this.#fine.set(holders, isFine);
      if (isFine) this.#copies_min = Math.min(this.#copies_min, members.length);
    }
    return isFine;
  }

  /** A shard needs one copy, on a volume that stays. */
  #shardClass(id: Uint8Array): Missing {
    const holders = this.#holdersOf('content', id);
    if (holders.some(isActive)) return undefined;
    for (const member of holders) this.#undrained.add(member);
    return 'shard';
  }

  #copiesClass(kind: 'content' | 'object', id: Uint8Array): Missing {
    const holders = this.#holdersOf(kind, id);
    if (holders.length === 0 || !this.#isWanted(kind, id, holders)) return undefined;
    const target =
      kind === 'content' ? targetOfContent(this.#set, id, holders) : this.#set.targetOf(RecordType.object, id);
    this.#copies_min = Math.min(this.#copies_min, holders.length);
    if (!lacks(this.#set, target, holders)) return undefined;
    if (!holders.every(isActive)) for (const member of holders) this.#undrained.add(member);
    return holders.length < 2 && target > 1 ? 'last' : 'rf';
  }

  /** What is an object is looked at as one. What is left of a removed one may be a chunk of others. Parity alone is garbage. */
  #isWanted(kind: 'content' | 'object', id: Uint8Array, holders: readonly Member[]): boolean {
    if (kind === 'object') return this.#set.knowsObject(id);
    const types = holders.map((member) => typeOf(member, id));
    if (types.some(isObject) && this.#set.knowsObject(id)) return false;
    return types.some((type) => type !== RecordType.parity) || this.#set.stripes.lone.has(id);
  }

  /** What was put while the inventories were read may be in one of them and not in another: so it is looked up. */
  #holdersOf(kind: Kind, id: Uint8Array): Member[] {
    return this.#members.filter((member) => member.holdsDurably(kind, id));
  }

  /** Whether it is filed, or known already. */
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
    // A queue full of what is as urgent: this one waits its turn.
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

const isActive = (member: Member): boolean => member.life === 'active';

function bitsOf(mask: number): number {
  let count = 0;
  for (let rest = mask; rest !== 0; rest &= rest - 1) count += 1;
  return count;
}
