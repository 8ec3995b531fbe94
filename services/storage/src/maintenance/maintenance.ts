/**
 * Background work that keeps stored data complete: plans and repairs missing copies, scrubs, and makes stripes.
 *
 *     lost volume, failed read, interval --> planner --> repair(256) --> K workers --> volumes
 *                                               ^            scrub, striper ----^
 *                                               `-- when the queue is empty: is the deficit gone?
 *
 * Contract: all background reads and writes draw from one byte rate, which yields to client requests and can be changed at
 * run time. Bound: those of the queue, the planner and the workers. Cancellation: once a drain has begun, no plan, stripe or
 * scrub pass begins; `stopping` ends planner, scrub and striper; after `beginDrain` the workers empty the queue and end.
 */
import type { RepairResult } from '@ron/proto';
import {
  Pacing,
  Planner,
  RepairWorker,
  Scrubber,
  Striper,
  type Fault,
  type RepairQueue,
  type ScrubberInit,
} from '@ron/durability';
import { sched, sleep, type TaskContext } from '@ron/kernel';
import type { RepairStatus, ScrubInfo } from '@ron/proto';
import type { Log } from '@ron/telemetry';
import type { StorageConfig } from '../config.ts';
import type { Volumes } from '../volumes/volumes.ts';
import type { TaskWork } from '@ron/service';
import { repairStatusOf, scrubInfosOf } from './maintenance-status.ts';
import { RepairSchedule } from './repair-schedule.ts';
import { StripeSchedule } from './stripe-schedule.ts';

export interface MaintenanceInit {
  readonly volumes: Volumes;
  readonly queue: RepairQueue;
  /** The config in force; may change at run time. */
  readonly source: { readonly value: StorageConfig };
  /** Whether a drain has begun. */
  readonly isStopping: () => boolean;
  /** How long clients waited for the disks lately, by kind of request. */
  readonly latencies_ms: () => readonly (number | undefined)[];
  /** Called for each wait for the byte rate. */
  readonly onWaited: (waited_ms: number) => void;
  /** Objects with missing parts, if a compaction has counted them. */
  readonly broken: () => number | undefined;
  /** Checks the journals of uploads beside a volume. */
  readonly journals: NonNullable<ScrubberInit['journals']>;
  readonly log: Log;
}

const FIRST_SCRUB_MS = 60_000;

export class Maintenance {
  readonly planner: Planner;
  readonly pacing: Pacing;
  readonly scrubber: Scrubber;
  readonly striper: Striper | undefined;
  readonly results: Record<RepairResult | 'failed', number> = { repaired: 0, whole: 0, gone: 0, failed: 0 };
  readonly #init: MaintenanceInit;
  readonly #repairs: RepairSchedule;
  readonly #stripes: StripeSchedule;

  constructor(init: MaintenanceInit) {
    const { volumes, queue, source, isStopping, log } = init;
    const { set } = volumes;
    const { durability } = source.value;
    this.#init = init;
    this.planner = new Planner({ set, queue });
    this.pacing = new Pacing({
      rate_bytes_per_s: durability.repair_pacing,
      latencies_ms: init.latencies_ms,
      onWaited: init.onWaited,
    });
    const pace = (bytes: number, signal: AbortSignal): Promise<void> => this.pacing.take(bytes, signal);
    this.scrubber = new Scrubber({
      set,
      pace,
      onFault: (fault) => this.planner.file(fault),
      journals: init.journals,
      rate_bytes_per_s: () => this.pacing.rate_bytes_per_s,
      period_ms: durability.scrub_interval,
    });
    const { ec_data_shards: data_shards, ec_parity_shards: parity_shards } = durability;
    this.striper = durability.ec ? new Striper({ set, data_shards, parity_shards, pace }) : undefined;
    const interval_ms = (): number => this.#interval_ms;
    this.#stripes = new StripeSchedule({ striper: this.striper, interval_ms, isStopping, log });
    const { planner } = this;
    this.#repairs = new RepairSchedule({
      volumes,
      queue,
      planner,
      stripes: this.#stripes,
      interval_ms,
      isStopping,
      log,
    });
    volumes.onChange = () => this.wake();
    volumes.onFault = (fault) => this.file(fault);
  }

  /** Requests the repair of a record whose read failed. */
  file(fault: Fault): void {
    this.planner.file(fault);
  }

  /** Requests a plan now. */
  wake(): void {
    this.#repairs.wake();
  }

  /** Applies the settings that may change at run time. */
  follow(): void {
    this.pacing.setRate(this.#init.source.value.durability.repair_pacing);
    this.wake();
  }

  /** Accepts no further repairs; workers end once the queue is empty. */
  beginDrain(): void {
    // [storage I-6] Queued repairs are finished within the drain; no new job enters.
    this.#init.queue.close();
  }

  /** Unix time of the last plan that covered every volume. */
  get planned_ms(): number | undefined {
    return this.#repairs.planned_ms;
  }

  runPlanner({ stopping }: TaskContext): Promise<void> {
    return this.#repairs.run(stopping);
  }

  async runWorker({ signal }: TaskContext): Promise<void> {
    const { volumes, queue } = this.#init;
    const worker = new RepairWorker({
      set: volumes.set,
      queue,
      pacing: this.pacing,
      onEnd: (_job, result) => void (this.results[typeof result === 'string' ? result : 'failed'] += 1),
    });
    // Not by `stopping`: workers empty the queue within the drain.
    await worker.run({ stopping: signal, signal });
  }

  async runScrub({ stopping }: TaskContext): Promise<void> {
    await sleep(FIRST_SCRUB_MS * (1 + sched.random()), stopping, 'scrub');
    if (stopping.aborted || this.#init.isStopping()) return;
    await this.scrubber.runForever(stopping);
  }

  runStriper({ stopping }: TaskContext): Promise<void> {
    return this.#stripes.run(stopping);
  }

  /** Plans and repairs until an inventory shows no deficit, then makes the missing stripes. */
  get repair(): TaskWork {
    return { run: (signal) => this.#repairs.repairAll(signal), progress: () => ({ ...this.status }) };
  }

  /** Reads every record now. */
  get scrub(): TaskWork {
    return { run: (signal) => this.scrubber.run(signal), progress: () => ({ volumes: this.scrubs }) };
  }

  get status(): RepairStatus {
    const { planner, pacing, results, striper, planned_ms } = this;
    const { volumes, queue, broken } = this.#init;
    return repairStatusOf({ volumes, queue, planner, pacing, striper, results, planned_ms, broken: broken() });
  }

  /** Why scrub passes do not end in time, by volume. */
  get scrubProblem(): string | undefined {
    const late = [...this.scrubber.late].map(([name, why]) => `${name}: ${why}`);
    return late.length === 0 ? undefined : `scrub is late: ${late.join('; ')}; raise durability.repair_pacing`;
  }

  get scrubs(): ScrubInfo[] {
    return scrubInfosOf(this.scrubber, this.#init.volumes);
  }

  get #interval_ms(): number {
    const { volumes, source } = this.#init;
    if (volumes.isSingle) return Infinity;
    return source.value.durability.repair_interval * (0.9 + sched.random() / 5);
  }
}
