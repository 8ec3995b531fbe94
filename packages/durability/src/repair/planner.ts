/**
 * Compares the records that the volumes hold with those that they should hold, and files repairs.
 *
 * Contract: a repair is filed for every record with too few copies, in fewer failure domains than possible, or on draining
 * volumes; for every shard that is lost or could be placed better; and for every stripe that is not recorded on its volumes.
 * A repair that is queued or running is not filed again. Last copies are always filed, before anything else; others wait
 * until the queue has room. The deficit is that of the last complete walk: a repair counts once the next walk confirms it.
 * Bound: a page of each inventory in memory. Overflow: that of RepairQueue. Cancellation: by the signal, between two pages;
 * filed repairs stay filed.
 */
import { PlanWalk, type PlanReport } from './plan-walk.ts';
import type { RepairQueue } from './repair-queue.ts';
import type { Fault, VolumeSet } from '../set/volume-set.ts';

export interface PlannerInit {
  set: VolumeSet;
  queue: RepairQueue;
}

const NOTHING: PlanReport = {
  records: 0,
  deficit: 0,
  deficit_by_class: { last: 0, rf: 0, parity: 0 },
  crowded: 0,
  copies_min: Infinity,
  unreadable: [],
  isComplete: false,
};

export class Planner {
  readonly #set: VolumeSet;
  readonly #queue: RepairQueue;
  #report = NOTHING;
  #underWay = 0;
  /** The set's `changes_total` when the last plan began; -1 before the first. */
  #planned_changes = -1;
  #plans = 0;
  readonly #walks = new Set<PlanWalk>();
  /** The volumes that took records when every shard was found in the best place. */
  #settled = '';

  constructor(init: PlannerInit) {
    this.#set = init.set;
    this.#queue = init.queue;
  }

  /** The result of the last complete plan. */
  get report(): PlanReport {
    return this.#report;
  }

  /** Known deficit: the walk under way may have found more than the last one. */
  get deficit(): number {
    return Math.max(this.#report.deficit, ...[...this.#walks].map((walk) => walk.deficit));
  }

  /** A plan is under way, or the volumes have changed since the last one: the deficit is not known yet. */
  get isPlanning(): boolean {
    return (
      this.#underWay > 0 || (this.#planned_changes >= 0 && this.#planned_changes !== this.#set.lifecycle.changes_total)
    );
  }

  get plans_total(): number {
    return this.#plans;
  }

  /** Files an urgent repair for a read that failed. The worker checks the record first. */
  file(fault: Fault): void {
    const { kind, id, volume } = fault;
    if (kind !== 'content' && kind !== 'object' && kind !== 'stripe') return;
    this.#queue.offer({ kind, id: Uint8Array.from(id), class: kind === 'stripe' ? 'parity' : 'last', suspect: volume });
  }

  async plan(signal: AbortSignal): Promise<PlanReport> {
    this.#underWay += 1;
    try {
      return await this.#plan(signal);
    } finally {
      this.#underWay -= 1;
    }
  }

  async #plan(signal: AbortSignal): Promise<PlanReport> {
    await this.#set.reconcileStale(signal);
    this.#planned_changes = this.#set.lifecycle.changes_total;
    const places = placesOf(this.#set);
    // Only the stripes know where their shards are, and they have to be read: done only after volumes were added, lost or
    // recovered.
    const isSettled = places === this.#settled;
    const walk = new PlanWalk(this.#set, this.#queue, signal);
    this.#walks.add(walk);
    try {
      const found = await walk.run(isSettled ? 'under-replicated' : 'all');
      const report = isSettled ? { ...found, crowded: this.#report.crowded } : found;
      this.#plans += 1;
      if (report.isComplete) this.#report = report;
      if (report.isComplete && report.deficit === 0) this.#settled = places;
      return report;
    } finally {
      this.#walks.delete(walk);
    }
  }
}

const placesOf = (set: VolumeSet): string =>
  [
    set.lifecycle.changes_total,
    ...set.placement.places.flatMap((member) => (member.takesRecords ? member.id : [])),
  ].join('\n');
