/**
 * Writes to a set of volumes: contents to some, objects to those who must know, decisions to all.
 *
 * Promise: what it writes is ordered, on each volume, by when `put` was called. A put is acknowledged when `write_min`
 * volumes have it; a decision about an object, when everybody has it who has not been struck off.
 * Bound: a put waits for a slow volume `lag_ms` at most when enough have it. Overflow: `storage_full` or `not_ready` when too
 * few took it. Cancellation: by the signal; what was written until then may be there or not.
 */
import { chunkKey, isObject, RecordType, type NewRecord } from '@ron/cas';
import type { RonError } from '@ron/kernel';
import { shortOf, writeCopies, type Copies, type CopiesInit } from './copies.ts';
import type { Member } from './member.ts';
import type { VolumeSet } from './volume-set.ts';

/** A disk may take its time to sync what others have synced. */
const SYNC_LAG_MS = 5000;

export class SetWriter {
  readonly #set: VolumeSet;
  readonly #lag_ms: number;

  constructor(set: VolumeSet, lag_ms: number) {
    this.#set = set;
    this.#lag_ms = lag_ms;
  }

  put(records: readonly NewRecord[], signal: AbortSignal, durability: 'now' | 'later'): Promise<void> {
    if (signal.aborted) return Promise.reject(signal.reason);
    const [first] = records;
    if (records.length === 1 && first !== undefined) return this.#putOne(first, signal, durability);
    // Each in this step: who comes later is ordered after all of them.
    return Promise.all(records.map((record) => this.#putOne(record, signal, durability))).then(() => undefined);
  }

  async sync(signal: AbortSignal): Promise<void> {
    const members = this.#set.members.filter((member) => member.isWritable);
    const { written, failures } = await writeCopies({
      order: members,
      has: () => false,
      write: (member) => member.sync(signal),
      target: members.length,
      enough: this.#set.write_min,
      lag_ms: SYNC_LAG_MS,
    });
    signal.throwIfAborted();
    if (written.length < this.#set.write_min) throw this.#shortOf(written.length, failures.values());
  }

  #putOne(record: NewRecord, signal: AbortSignal, durability: 'now' | 'later'): Promise<void> {
    if (isObject(record.type)) return this.#putObject(record, signal);
    const isMark =
      record.type !== RecordType.chunk && record.type !== RecordType.page && record.type !== RecordType.parity;
    return isMark ? this.#putMark(record, signal) : this.#putContent(record, signal, durability);
  }

  async #putContent(record: NewRecord, signal: AbortSignal, durability: 'now' | 'later'): Promise<void> {
    const copies = await this.#write({
      order: this.#set.placement.order(record.id).filter((member) => member.takesRecords),
      // What is left to a sync need not be there durably. A second one would hide the first, which a sync may have reached.
      has: (member) =>
        durability === 'later' ? member.holds('content', record.id) : member.holdsDurably('content', record.id),
      write: (member) => member.write([record], signal, durability),
      target: this.#set.targetOf(record.type, record.id),
    });
    this.#require(copies, signal);
  }

  /** Whoever says that it was removed must hear that it is back. */
  async #putObject(record: NewRecord, signal: AbortSignal): Promise<void> {
    const key = chunkKey(record.id);
    using watch = this.#set.removals.watch(key, 'new');
    const isRemoving = this.#set.removals.isRemoving(key);
    const told = this.#set.members.filter(
      (each) => each.isReadable && each.isCurrent && (isRemoving || each.volume.wasRemoved(record.id)),
    );
    const others = this.#set.placement.order(record.id).filter((each) => each.takesRecords && !told.includes(each));
    const copies = await this.#write({
      order: [...told, ...others],
      has: () => false,
      write: (member) => member.write([record], signal),
      goesOn: () => !watch.isRemoved,
      target: Math.max(this.#set.targetOf(record.type, record.id), told.length),
    });
    this.#require(copies, signal);
    await this.#strike(told, copies, signal);
  }

  /** A decision about an object: everybody who counts has to hear it. */
  async #putMark(record: NewRecord, signal: AbortSignal): Promise<void> {
    const key = chunkKey(record.id);
    const isRemoval = record.type === RecordType.remove;
    if (isRemoval) this.#set.removals.begin(key);
    try {
      const members = this.#set.members.filter((each) => each.isReadable && (each.isCurrent || each.isWritable));
      const current = members.filter((member) => member.isCurrent);
      const copies = await this.#write({
        order: members,
        has: () => false,
        write: (member) => member.write([record], signal),
        target: members.length,
      });
      this.#require({ ...copies, written: copies.written.filter((member) => member.isCurrent) }, signal);
      await this.#strike(current, copies, signal);
    } finally {
      if (isRemoval) this.#set.removals.end(key);
    }
  }

  /** Those who should have heard something and did not, and those who are not here, no longer count. */
  async #strike(told: readonly Member[], { written }: Copies, signal: AbortSignal): Promise<void> {
    const missed = told.filter((member) => !written.includes(member)).map((member) => member.name);
    const absent = this.#set.membership.absent();
    if (missed.length + absent.length > 0) await this.#set.membership.strike([...missed, ...absent], signal);
  }

  #write(init: Omit<CopiesInit, 'enough' | 'lag_ms'>): Promise<Copies> {
    return writeCopies({ enough: this.#set.write_min, lag_ms: this.#lag_ms, ...init });
  }

  #require({ written, failures }: Copies, signal: AbortSignal): void {
    if (written.length >= this.#set.write_min) return;
    signal.throwIfAborted();
    throw this.#shortOf(written.length, failures.values());
  }

  #shortOf(written: number, failures: Iterable<unknown>): RonError {
    const known = this.#set.members.flatMap((member) => member.failure ?? []);
    return shortOf({ enough: this.#set.write_min, written, failures: [...failures, ...known] });
  }
}
