/**
 * Writes to a set of volumes: contents to some, objects to those who must know, decisions to all.
 *
 * Contract: writes are ordered, on each volume, by when `put` was called. A put is acknowledged when `write_min` volumes
 * have it; a decision about an object, when every volume has it that has not been struck off. A volume that was slow a
 * moment ago gets new records only when the others do not suffice, and is not waited for when enough others have them.
 * Bound: a put or sync waits for a slow volume `lag_ms` at most when enough have it. Overflow: `storage_full` or
 * `not_ready` when too few took it. Cancellation: by the signal; a write that was cancelled may be there or not.
 */
import { chunkKey, isObject, RecordType, type NewRecord } from '@ron/cas';
import { RonError } from '@ron/kernel';
import { shortOf, writeCopies, type Copies, type CopiesInit } from '../placement/copies.ts';
import { FirstPuts } from './first-puts.ts';
import type { Member } from '../membership/member.ts';
import type { VolumeSet } from './volume-set.ts';

export class SetWriter {
  readonly #set: VolumeSet;
  readonly #lag_ms: number;
  readonly #firstPuts = new FirstPuts();

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

  /** Whether the first put of an object is under way: it is visible only with `write_min` durable copies. */
  isFirstPut(id: Uint8Array): boolean {
    return this.#firstPuts.has(id);
  }

  /**
   * Leaves a slow volume behind only when each of the `needed` contents can be read: the caller then puts those that have
   * too few copies once more, and other volumes take them.
   */
  async sync(signal: AbortSignal, needed: readonly Uint8Array[]): Promise<void> {
    const members = this.#set.members.filter((member) => member.isWritable);
    const { written, failures } = await this.#write({
      order: members,
      has: () => false,
      write: (member) => member.sync(signal),
      target: members.length,
      mayLeave: isSlow,
      mayEnd: () => needed.every((id) => this.#set.has('content', id)),
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
      order: this.#takers(record.id),
      has: (member) => member.holdsDurably('content', record.id),
      write: (member) => member.write([record], signal, durability),
      target: this.#set.targetOf(record.type, record.id),
      mayLeave: isSlow,
    });
    this.#require(copies, signal);
  }

  #putObject(record: NewRecord, signal: AbortSignal): Promise<void> {
    const write = (): Promise<void> => this.#writeObject(record, signal);
    return this.#set.has('object', record.id) ? write() : this.#firstPuts.run(record.id, write);
  }

  /**
   * Volumes that recorded its removal must learn that it is back; when the record replaces one, so must every holder. Those
   * that miss it are struck off until reconciliation has brought them up.
   */
  async #writeObject(record: NewRecord, signal: AbortSignal): Promise<void> {
    const key = chunkKey(record.id);
    using watch = this.#set.removals.watch(key, 'new');
    const isRemoving = this.#set.removals.isRemoving(key);
    const listeners = this.#listeners();
    const holders = record.replaces === true ? listeners.filter((each) => each.holds('object', record.id)) : [];
    requireRoom(holders);
    using _ = record.replaces === true ? this.#set.removals.replace(key) : undefined;
    const told = listeners.filter((each) => isRemoving || each.volume.wasRemoved(record.id) || holders.includes(each));
    const hear = told.length > 0 ? [this.#set.membership.hear()] : [];
    const write = (member: Member): Promise<void> =>
      member.write(told.includes(member) ? [record, ...hear] : [record], signal);
    // Volumes that are emptied or have no room are told as well, but their copies are none that count on staying.
    const [keepers, others] = [told.filter((each) => each.takesRecords), told.filter((each) => !each.takesRecords)];
    // Those who never said so have nothing to hear but the number: without it they would seem to have missed something.
    const quiet = hear.length === 0 ? [] : listeners.filter((each) => each.isCurrent && !told.includes(each));
    const heard = this.#write({
      order: [...others, ...quiet],
      has: () => false,
      write: (member) => (quiet.includes(member) ? member.write(hear, signal) : write(member)),
      target: others.length + quiet.length,
      enough: 0,
    });
    const rest = this.#takers(record.id).filter((each) => !keepers.includes(each));
    const copies = await this.#write({
      order: [...keepers, ...rest],
      has: () => false,
      write,
      goesOn: () => !watch.isRemoved,
      target: Math.max(this.#set.targetOf(record.type, record.id), keepers.length),
      // One that misses what it must be told would be struck off: it gets `lag_ms`.
      mayLeave: (member) => isSlow(member) && !keepers.includes(member),
    });
    const { written } = await heard;
    this.#require(copies, signal);
    await this.#strike(told, [...copies.written, ...written], signal);
  }

  /** A decision about an object: everybody who counts has to hear it. */
  async #putMark(record: NewRecord, signal: AbortSignal): Promise<void> {
    const key = chunkKey(record.id);
    const isRemoval = record.type === RecordType.remove;
    if (isRemoval) this.#set.removals.begin(key);
    const heard = this.#set.membership.hear();
    try {
      const listeners = this.#listeners();
      const tell = (to: readonly Member[], init: { enough?: number }): Promise<Copies> => {
        const write = (member: Member): Promise<void> => member.write([record, heard], signal);
        return this.#write({ order: to, has: () => false, write, target: to.length, ...init });
      };
      // Those who do not count may hear it as well, but nobody relies on that.
      const others = tell(
        listeners.filter((member) => !member.isCurrent),
        { enough: 0 },
      );
      const copies = await tell(
        listeners.filter((member) => member.isCurrent),
        {},
      );
      const written = [...copies.written, ...(await others).written];
      // Those that came while it was written missed it. Who was struck off or replaced meanwhile has heard it for nobody.
      const counting = (): Copies => ({ ...copies, written: written.filter((each) => this.#counts(each)) });
      if (counting().written.length < this.#set.write_min) this.#missed(this.#set.members, written);
      this.#require(counting(), signal);
      await this.#strike(this.#set.members, written, signal);
      this.#require(counting(), signal);
    } catch (error) {
      this.#set.membership.refused();
      throw error;
    } finally {
      if (isRemoval) this.#set.removals.end(key);
    }
  }

  /** The volumes that take new records, the best for this id first, slow ones last. */
  #takers(id: Uint8Array): Member[] {
    const takers = this.#set.placement.order(id).filter((member) => member.takesRecords);
    if (!takers.some(isSlow)) return takers;
    return [...takers.filter((member) => !isSlow(member)), ...takers.filter(isSlow)];
  }

  /** Who is told of decisions: those who count, and those who could hear while they are told what they missed. */
  #listeners(): Member[] {
    return this.#set.members.filter((each) => each.isReadable && (each.isCurrent || each.isWritable));
  }

  #counts(member: Member): boolean {
    return member.isCurrent && member.isReadable && this.#set.members.includes(member);
  }

  /** Those who should have heard something and did not, and those who are not here, no longer count. */
  async #strike(told: readonly Member[], written: readonly Member[], signal: AbortSignal): Promise<void> {
    const ids = this.#missed(told, written).map((member) => member.id);
    await this.#set.membership.strike([...ids, ...this.#set.membership.absent()], signal);
  }

  /** Those who did not hear it, also when they do not count: whoever is telling them what they missed has to know. */
  #missed(told: readonly Member[], written: readonly Member[]): Member[] {
    const missed = told.filter((member) => !written.includes(member));
    for (const member of missed) member.missed_total += 1;
    return missed;
  }

  #write(init: Omit<CopiesInit, 'enough' | 'lag_ms'> & { enough?: number }): Promise<Copies> {
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

const isSlow = (member: Member): boolean => member.isSlowToWrite;

/** A volume without room could not take the new record and would be struck off: nothing is written then. */
function requireRoom(holders: readonly Member[]): void {
  const full = holders.find((member) => member.isCurrent && member.view.condition === 'full');
  if (full === undefined) return;
  throw new RonError('storage_full', `${full.name} is full: the media type cannot be changed`, {
    retry_after_ms: 1000,
  });
}
