/**
 * Compares what the volumes hold with what they should hold, and files what has to be repaired.
 *
 * Promise: every record that has fewer copies than wished, in fewer failure domains than there could be, or on volumes that
 * are to be emptied, every shard of a stripe that is nowhere or could lie better, and every stripe that is not known where
 * it is to be, is filed; nothing twice while it is queued or worked on, however many plans are made. Last copies are filed
 * in any case, before anything else; others wait until there is room. The deficit is what the last walk over all
 * inventories found: a repair counts when the next one confirms it.
 * Bound: a page of each inventory in memory, whatever the volumes hold. Overflow: as RepairQueue. Cancellation: by the signal,
 * between two pages; what was filed stays filed.
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
  /** How often volumes had come or gone when the last plan began; -1 before the first. */
  #planned_changes = -1;
  #plans = 0;
  readonly #walks = new Set<PlanWalk>();
  /** Which volumes took records when every shard was found as well placed as it could be. */
  #settled = '';

  constructor(init: PlannerInit) {
    this.#set = init.set;
    this.#queue = init.queue;
  }

  /** What the last plan that went through everything found. */
  get report(): PlanReport {
    return this.#report;
  }

  /** Records that lack something, as far as is known: a walk that is under way may have found more than the last one. */
  get deficit(): number {
    return Math.max(this.#report.deficit, ...[...this.#walks].map((walk) => walk.deficit));
  }

  /** A plan is under way, or the volumes have changed since the last one: then nobody knows yet what is missing. */
  get isPlanning(): boolean {
    return this.#underWay > 0 || (this.#planned_changes >= 0 && this.#planned_changes !== this.#set.life.changes_total);
  }

  get plans_total(): number {
    return this.#plans;
  }

  /** At once, for a read that failed. Whoever repairs it looks again first. */
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
    await this.#set.settle(signal);
    this.#planned_changes = this.#set.life.changes_total;
    const places = placesOf(this.#set);
    // Where shards lie is known only to their stripes, which have to be read: only when volumes came, went or recovered.
    const isSettled = places === this.#settled;
    const walk = new PlanWalk(this.#set, this.#queue, signal);
    this.#walks.add(walk);
    try {
      const found = await walk.run(isSettled ? 'those too few know' : 'all');
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
  [set.life.changes_total, ...set.placement.places.flatMap((member) => (member.takesRecords ? member.id : []))].join(
    '\n',
  );
