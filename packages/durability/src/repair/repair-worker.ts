/**
 * Takes jobs from the queue and runs them one at a time.
 *
 * Contract: a job that fails is planned again by the next plan, and does not end the worker. Every read and write is paced
 * first. Bound: one job at a time; run several workers for more.
 * Cancellation: `stopping` ends it after the current job, `signal` ends the current job too.
 */
import type { RepairResult } from '@ron/proto';
import type { Pacing } from './pacing.ts';
import { withVolumeTimeout, type WithVolumeTimeout } from '../set/volume-timeout.ts';
import { repair } from './repair.ts';
import type { RepairJob, RepairQueue } from './repair-queue.ts';
import type { VolumeSet } from '../set/volume-set.ts';

export interface RepairWorkerInit {
  set: VolumeSet;
  queue: RepairQueue;
  pacing: Pick<Pacing, 'take'>;
  /** How long a volume may take for one record. Default: 30 s. */
  withVolumeTimeout?: WithVolumeTimeout;
  /** Called with the outcome of each job. Must not throw. */
  onEnd?: (job: RepairJob, result: RepairResult | { error: unknown }) => void;
}

export class RepairWorker {
  readonly #init: RepairWorkerInit;
  repaired_total = 0;
  failed_total = 0;

  constructor(init: RepairWorkerInit) {
    this.#init = init;
  }

  /** Ends once the queue is closed and empty, or by `stopping`. */
  async run(init: { stopping: AbortSignal; signal: AbortSignal }): Promise<void> {
    const { queue } = this.#init;
    while (!init.stopping.aborted) {
      const job = await queue.take(init.stopping).catch(() => undefined);
      if (job === undefined) return;
      await this.work(job, init.signal);
    }
  }

  async work(job: RepairJob, signal: AbortSignal): Promise<void> {
    const { set, queue, pacing, onEnd } = this.#init;
    try {
      const pace = (bytes: number, until: AbortSignal): Promise<void> => pacing.take(bytes, until);
      const result = await repair(
        { set, pace, withVolumeTimeout: this.#init.withVolumeTimeout ?? withVolumeTimeout },
        job,
        signal,
      );
      if (result === 'repaired') this.repaired_total += 1;
      onEnd?.(job, result);
    } catch (error) {
      this.failed_total += 1;
      onEnd?.(job, { error });
    } finally {
      queue.done(job);
    }
  }
}
