/**
 * Reads from a set of volumes.
 *
 * Contract: a read continues with another copy, or rebuilds from a stripe, within the same call, and reports the fault.
 * Bound: it waits at most `lag_ms` for a volume if another one could deliver the record. Cancellation: by the signal.
 */
import { notComplete, RecordType, type Kind, type StoredRecord } from '@ron/cas';
import { isRonError, LATE, RonError, withTimeout } from '@ron/kernel';
import type { Member } from '../membership/member.ts';
import { readMany, type Batch } from './read-many.ts';
import type { VolumeSet } from './volume-set.ts';

export class SetReader {
  readonly #set: VolumeSet;
  readonly #lag_ms: number;

  constructor(set: VolumeSet, lag_ms: number) {
    this.#set = set;
    this.#lag_ms = lag_ms;
  }

  /** `without`: a volume that must not be read. */
  async get(kind: Kind, id: Uint8Array, signal: AbortSignal, without?: Member): Promise<StoredRecord | undefined> {
    const { stripes } = this.#set;
    const failures: unknown[] = [];
    const tried = new Set<Member>(without === undefined ? [] : [without]);
    // Looked up again each time: the record may have moved to another volume meanwhile.
    for (let member = this.#untried(kind, id, tried); member !== undefined; member = this.#untried(kind, id, tried)) {
      tried.add(member);
      const isLast = this.#untried(kind, id, tried) === undefined && !(kind === 'content' && stripes.protects(id));
      try {
        const read = member.volume.get(kind, id, signal);
        const record = isLast ? await read : await withTimeout(read, this.#lag_ms);
        if (record === LATE) throw new RonError('timeout', `${member.name} took too long`, { op: 'read' });
        if (record !== undefined) return record;
      } catch (error) {
        signal.throwIfAborted();
        failures.push(error);
        this.#set.fault(kind, id, member.volume, error);
      }
    }
    const rebuilt = kind === 'content' ? await stripes.rebuild(id, signal) : undefined;
    if (rebuilt !== undefined) return { type: RecordType.chunk, payload: rebuilt, meta: new Uint8Array(0) };
    if (failures.length > 0) throw this.#lastResort(failures[0]);
    return undefined;
  }

  /** A damaged record is lost only if no absent volume can have an intact copy. */
  #lastResort(failure: unknown): unknown {
    const { away } = this.#set;
    if (away === undefined || !isRonError(failure, 'integrity')) return failure;
    return notComplete(`no intact copy is available; ${away}`);
  }

  getNow(kind: Kind, id: Uint8Array): StoredRecord | undefined {
    for (const member of this.#set.holdersOf(kind, id)) {
      const record = member.volume.getNow?.(kind, id);
      if (record !== undefined) return record;
    }
    return undefined;
  }

  /** Whether all current holders have the object's record with this meta. A volume that fails or is late has not. */
  async allHaveMeta(id: Uint8Array, meta: Uint8Array, signal: AbortSignal): Promise<boolean> {
    const holders = this.#set.members.filter((member) => member.isCurrent && member.holds('object', id));
    const agree = holders.map(async ({ volume }) => {
      const now = volume.getNow?.('object', id);
      if (now !== undefined) return Buffer.compare(now.meta, meta) === 0;
      const read = await withTimeout(volume.get('object', id, signal), this.#lag_ms).catch(() => undefined);
      return read !== undefined && read !== LATE && Buffer.compare(read.meta, meta) === 0;
    });
    const answers = await Promise.all(agree);
    signal.throwIfAborted();
    return answers.every(Boolean);
  }

  getMany(ids: readonly Uint8Array[], signal: AbortSignal): AsyncGenerator<Batch, void, void> {
    return readMany({
      ids,
      holderOf: (id) => this.#set.holdersOf('content', id)[0]?.volume,
      fallback: async (id) => {
        const record = await this.get('content', id, signal);
        if (record === undefined) throw new RonError('not_found', `${this.#set.name} does not hold it`);
        return record.payload;
      },
      rescue: (id) => this.#set.stripes.rescue(id, signal),
      lag_ms: this.#lag_ms,
      onFailure: (volume, id, error) => this.#set.fault('content', id, volume, error),
      signal,
    });
  }

  #untried(kind: Kind, id: Uint8Array, tried: ReadonlySet<Member>): Member | undefined {
    return this.#set.holdersOf(kind, id).find((member) => !tried.has(member));
  }
}
