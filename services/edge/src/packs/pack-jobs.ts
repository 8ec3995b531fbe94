/** The jobs of the task `pack_verifier`: they travel through the channel `verify`. */
import { onAbort, sched, type Parked } from '@ron/kernel';
import type { Address } from '@ron/proto';
import type { PackFormat, PackInfo } from './pack.ts';
import type { UploadFile } from './pack-directory.ts';

/** Mounts an uploaded file. */
export interface InstallJob {
  readonly kind: 'install';
  readonly name: string;
  readonly format: PackFormat;
  readonly upload: UploadFile;
  readonly expect: Address | undefined;
  readonly ends: JobEnd<PackInfo>;
}

/** Removes a pack and its file. */
export interface RemoveJob {
  readonly kind: 'remove';
  readonly name: string;
  readonly ends: JobEnd<boolean>;
}

/** Compares the directory with the mounts. */
export interface ScanJob {
  readonly kind: 'scan';
  readonly ends: JobEnd<void>;
}

export type PackJob = InstallJob | RemoveJob | ScanJob;

/**
 * The end of a job, for the caller that waits for it.
 *
 * Contract: the caller gets one outcome. Its signal ends the wait and the job, until the job commits: from then on the caller
 * waits for the outcome, because the pack may be replaced already. [edge I-5]
 */
export class JobEnd<T> {
  readonly signal: AbortSignal;
  readonly #end: Parked<T>;
  readonly #registration: Disposable;
  #isCommitted = false;

  constructor(signal: AbortSignal) {
    this.signal = signal;
    this.#end = sched.park<T>('pack_job');
    this.#registration = onAbort(signal, (reason) => {
      if (!this.#isCommitted) this.#end.fail(reason);
    });
  }

  get outcome(): Promise<T> {
    return this.#end.promise;
  }

  /** Throws if the caller has left; otherwise it waits from now on. */
  commit(): void {
    this.signal.throwIfAborted();
    this.#isCommitted = true;
  }

  /** Ends the wait with the outcome of the work. Never rejects. */
  async with(work: () => Promise<T>): Promise<void> {
    try {
      this.signal.throwIfAborted();
      this.#end.wake(await work());
    } catch (error) {
      this.#end.fail(error);
    } finally {
      this.#registration[Symbol.dispose]();
    }
  }

  fail(error: unknown): void {
    this.#registration[Symbol.dispose]();
    this.#end.fail(error);
  }
}
