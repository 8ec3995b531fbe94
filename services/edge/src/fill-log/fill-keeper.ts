/**
 * The task `fill_log` [edge I-2]: appends completed fills to the fill log, then makes them findable.
 *
 * Contract: an asset becomes findable only after its entry is durable; objects of storage have no entry. A fill whose entry
 * cannot be written is not kept: its client has its answer already. Of several fills of one key in a batch the last is kept.
 * Bound: the channel, and `BATCH_MAX` fills per append. Overflow: the worker's; it answers without the cache.
 * Cancellation: `run` ends between two batches; `close` completes the fills in the channel.
 */
import { Deadline, NEVER, type Mpsc } from '@ron/kernel';
import type { AssetKey } from '../assets/asset-key.ts';
import type { AssetCache, StoredBody } from '../cache/asset-cache.ts';
import type { FilledAsset } from '../fill/fills.ts';
import type { RunningPart } from '../running-part.ts';
import { encodeFill } from './fill-entry.ts';
import type { FillLog } from './fill-log.ts';
import { CHECKPOINT_MS } from './signed-fill-log.ts';

/** `kept`; `purged`: a purge came first; `failed`: no entry, or neither disk nor memory took it; `superseded`: a newer fill of the key was kept. */
export type KeepResult = 'kept' | 'purged' | 'failed' | 'superseded';

export interface FillKeeperInit {
  readonly fills: Mpsc<FilledAsset>;
  readonly log: Pick<FillLog, 'append'> & { readonly isWorkPending: boolean; work(): void };
  readonly cache: Pick<AssetCache, 'keep'>;
  /** Of one batch. */
  readonly deadline: () => Deadline;
  readonly count: (result: KeepResult, fills: number) => void;
}

/** One append and one sync for so many fills. */
const BATCH_MAX = 64;

export class FillKeeper implements RunningPart, AsyncDisposable {
  readonly #init: FillKeeperInit;

  constructor(init: FillKeeperInit) {
    this.#init = init;
  }

  async run(stopping: AbortSignal): Promise<void> {
    const { log } = this.#init;
    const batch: FilledAsset[] = [];
    for (;;) {
      const isOpen = await this.#receive(stopping, batch);
      if (!isOpen) return;
      if (batch.length > 0) await this.#keepAll(batch);
      log.work();
    }
  }

  /** Call it when the task and the workers have ended. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#init.fills.close();
    await this.run(NEVER);
  }

  /** Receives a batch; an empty one if the log has work first. False: closed and empty. */
  async #receive(stopping: AbortSignal, batch: FilledAsset[]): Promise<boolean> {
    const { fills, log } = this.#init;
    // If the log has no work, only a fill wakes the task.
    const wait_ms = log.isWorkPending && !fills.isClosed ? CHECKPOINT_MS : undefined;
    using due = wait_ms === undefined ? undefined : Deadline.after('fill_log.work', wait_ms, { signal: stopping });
    try {
      await fills.recvMany(BATCH_MAX, due?.signal ?? stopping, batch);
      return batch.length > 0;
    } catch (error) {
      if (due === undefined || stopping.aborted) throw error;
      batch.length = 0;
      return true;
    }
  }

  async #keepAll(batch: readonly FilledAsset[]): Promise<void> {
    using deadline = this.#init.deadline();
    const { signal } = deadline;
    const kept = new Set<StoredBody>();
    try {
      const logged = await this.#logged(batch, signal);
      const newest = new Map<AssetKey, FilledAsset>(logged.map((each) => [each.meta.key, each]));
      this.#count('superseded', logged.length - newest.size);
      // Together: the notes share one sync.
      await Promise.all(
        [...newest.values()].map(async (each) => {
          if (await this.#keep(each, signal)) kept.add(each.body);
        }),
      );
    } finally {
      for (const each of batch) {
        if (!kept.has(each.body)) each.body.discard();
        each.settled();
      }
    }
  }

  /** The fills whose entries are durable, and objects. */
  async #logged(batch: readonly FilledAsset[], signal: AbortSignal): Promise<FilledAsset[]> {
    const objects = batch.filter(({ meta }) => meta.provenance === undefined);
    const entries = batch.flatMap((fill) => {
      const { provenance } = fill.meta;
      return provenance === undefined ? [] : [{ fill, bytes: encodeFill(provenance) }];
    });
    if (entries.length === 0) return objects;
    try {
      const first = await this.#init.log.append(
        entries.map(({ bytes }) => bytes),
        signal,
      );
      const filled = entries.map(({ fill }, at) => ({ ...fill, meta: { ...fill.meta, log_index: first + at } }));
      return [...objects, ...filled];
    } catch {
      // The log reports it.
      this.#count('failed', entries.length);
      return objects;
    }
  }

  async #keep({ meta, body, generation }: FilledAsset, signal: AbortSignal): Promise<boolean> {
    try {
      const outcome = await this.#init.cache.keep(meta, body, generation, signal);
      this.#count(outcome === 'not_stored' ? 'failed' : outcome, 1);
      return outcome === 'kept';
    } catch {
      // The disk reports its failures itself; here the deadline has passed.
      this.#count('failed', 1);
      return false;
    }
  }

  #count(result: KeepResult, fills: number): void {
    if (fills > 0) this.#init.count(result, fills);
  }
}
