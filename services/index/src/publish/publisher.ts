/**
 * The only writer of the name log [index I-2]: checks each change, appends a batch with one sync, commits it to the database,
 * invalidates cached answers, and then answers the callers.
 *
 * Contract: changes are applied in the order of the channel. A caller that got a success finds its change after any crash, and
 * no later lookup sees the state before it. A refused change leaves no entry. If the database fails after the append, the caller
 * gets an error, and the change takes effect with the next catch-up; repeating the call then succeeds.
 * Bound: the channel, and `BATCH_MAX` changes per append. Overflow: `busy`.
 * Cancellation: a change whose signal aborts before its batch begins is dropped; later the caller leaves, the change stays.
 */
import { Deadline, isRonError, NEVER, orAborted, RonError, sched, type Mpsc, type Parked } from '@ron/kernel';
import type { IndexStore, LogChange } from '../store/index-store.ts';
import type { LogEntry } from './log-entry.ts';
import { CHECKPOINT_MS, type NameLog } from './name-log.ts';
import type { Caller } from './names.ts';

export interface Job {
  readonly request: ChangeRequest;
  readonly caller: Caller;
  readonly signal: AbortSignal;
  readonly done: Parked<void>;
}

/** A change that a caller wants. Its check runs within the batch, in order. */
export interface ChangeRequest {
  /** Reads the state for the check from the database, before the batch is checked. */
  load(batch: BatchState): Promise<void>;
  /** The change to append; undefined if there is nothing to change. Throws to refuse. Later checks of the batch see its result. */
  check(batch: BatchState): LogChange | undefined;
}

/** State that the checks of one batch share; dropped with the batch. */
export type BatchState = Map<string, unknown>;

export interface PublisherInit {
  readonly jobs: Mpsc<Job>;
  readonly log: NameLog;
  readonly store: Pick<IndexStore, 'apply'>;
  /** Called in order for each batch once it is durable, before the database has it. */
  readonly onAppended: (changes: readonly LogChange[]) => void;
  /** Called once the database has it, before the callers get their answers: drops cached answers. */
  readonly invalidate: (changes: readonly LogChange[]) => void;
  /** Called once the database has caught up with the log: lookups may have cached the state before. Drops all answers. */
  readonly invalidateAll: () => void;
}

const BATCH_MAX = 64;
const RETRY_MS = 1000;

interface Checked {
  readonly job: Job;
  readonly entry: LogEntry | undefined;
  readonly refusal: unknown;
}

export class Publisher {
  readonly #init: PublisherInit;

  constructor(init: PublisherInit) {
    this.#init = init;
  }

  /** Resolves when the change is durable and visible, or there was nothing to change. */
  async submit(request: ChangeRequest, caller: Caller, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    const { log, jobs } = this.#init;
    if (log.problem !== undefined) throw new RonError('not_ready', log.problem, { retry_after_ms: RETRY_MS });
    const job: Job = { request, caller, signal, done: sched.park<void>('publish') };
    // [index I-3] [index I-9] A full channel refuses at once.
    const sent = jobs.trySend(job);
    if (sent === 'full') {
      throw new RonError('busy', 'too many changes of names wait', { retry_after_ms: RETRY_MS, op: 'publish' });
    }
    if (sent === 'closed') throw draining();
    await orAborted(job.done.promise, signal);
  }

  /** The task `publisher`: runs until `stopping` aborts or the channel is closed and empty. */
  async run(stopping: AbortSignal): Promise<void> {
    const batch: Job[] = [];
    while (await this.#next(stopping, batch)) {
      if (batch.length > 0) await this.#process(batch);
      await this.#init.log.signIfDue();
    }
  }

  /** Refuses new changes and completes those that wait. Call it when the task has ended. */
  async close(): Promise<void> {
    this.#init.jobs.close();
    await this.run(NEVER);
  }

  /** Receives the next batch; an empty one if a checkpoint becomes due first. False: closed. */
  async #next(stopping: AbortSignal, batch: Job[]): Promise<boolean> {
    const { jobs, log } = this.#init;
    if (!log.isUnsigned || jobs.isClosed) {
      await jobs.recvMany(BATCH_MAX, stopping, batch);
      return batch.length > 0;
    }
    using due = Deadline.after('publish.checkpoint', CHECKPOINT_MS, { signal: stopping });
    try {
      await jobs.recvMany(BATCH_MAX, due.signal, batch);
      return batch.length > 0;
    } catch (error) {
      if (stopping.aborted) throw error;
      batch.length = 0;
      return true;
    }
  }

  async #process(batch: readonly Job[]): Promise<void> {
    const jobs = batch.filter(({ signal }) => !signal.aborted);
    try {
      // The database may lack entries of an earlier batch; checks need them.
      if (this.#init.log.isAhead) await this.#catchUp();
      const checked = await this.#checked(jobs);
      const entries = checked.flatMap(({ entry }) => entry ?? []);
      if (entries.length > 0) await this.#commit(entries);
      // A refusal may name a record of this batch, so it waits until that is durable.
      for (const { job, refusal } of checked) {
        if (refusal === undefined) job.done.wake();
        else job.done.fail(refusal);
      }
    } catch (error) {
      const reason = isRonError(error) ? error : new RonError('internal', 'the change failed', { cause: error });
      for (const { done } of jobs) done.fail(reason);
      if (!isRonError(error)) throw error;
    }
  }

  async #catchUp(): Promise<void> {
    const { log, invalidateAll } = this.#init;
    try {
      await log.catchUp(NEVER);
    } finally {
      invalidateAll();
    }
  }

  async #checked(jobs: readonly Job[]): Promise<Checked[]> {
    const state: BatchState = new Map();
    const loaded = await Promise.allSettled(jobs.map(({ request }) => request.load(state)));
    const at_ms = sched.wall_ms();
    return jobs.map((job, index): Checked => {
      try {
        const load = loaded[index]!;
        if (load.status === 'rejected') throw load.reason;
        const change = job.request.check(state);
        return { job, entry: change && { at_ms, by: job.caller, change }, refusal: undefined };
      } catch (error) {
        return { job, entry: undefined, refusal: error ?? new RonError('internal', 'the check failed') };
      }
    });
  }

  async #commit(entries: readonly LogEntry[]): Promise<void> {
    const { log, store, onAppended, invalidate } = this.#init;
    const changes = entries.map(({ change }) => change);
    const position = await log.append(entries);
    onAppended(changes);
    try {
      await store.apply(changes, position);
    } catch {
      // The writer thread may have crashed and been replaced. The log has the changes, so they are read from there.
      await this.#catchUp();
    } finally {
      invalidate(changes);
    }
  }
}

const draining = (): RonError => new RonError('draining', 'the index is shutting down');
