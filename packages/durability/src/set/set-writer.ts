/**
 * Writes to a set of volumes: contents to some, objects to those that hold or removed them, decisions to all.
 *
 * Contract: each volume applies writes in the order of the calls of `put`. A put is acknowledged once `write_min` volumes have
 * it; a decision about an object, once every volume that was not struck off has it. A volume that was slow recently gets new
 * records only if the others do not suffice, and is not awaited if enough others have them.
 * Bound: a put or sync waits at most `lag_ms` for a slow volume once enough have it. Overflow: `storage_full` or `not_ready`
 * when too few took it. Cancellation: by the signal; a cancelled write may be stored or not.
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
    // Each in this step: later writes are ordered after all of them.
    return Promise.all(records.map((record) => this.#putOne(record, signal, durability))).then(() => undefined);
  }

  /** Whether the first put of an object is under way: it is visible only with `write_min` durable copies. */
  isFirstPut(id: Uint8Array): boolean {
    return this.#firstPuts.has(id);
  }

  /**
   * Leaves a slow volume behind only if each of the `needed` contents can be read: the caller then writes those with too few
   * copies again, to other volumes.
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
    const informed = listeners.filter(
      (each) => isRemoving || each.volume.wasRemoved(record.id) || holders.includes(each),
    );
    const notes = informed.length > 0 ? [this.#set.membership.nextDecision()] : [];
    const write = (member: Member): Promise<void> =>
      member.write(informed.includes(member) ? [record, ...notes] : [record], signal);
    // Draining and full volumes get the record as well, but their copies do not count.
    const [keepers, others] = [
      informed.filter((each) => each.takesRecords),
      informed.filter((each) => !each.takesRecords),
    ];
    // Other volumes get only the number of the decision: without it they would seem to have missed one.
    const numbered = notes.length === 0 ? [] : listeners.filter((each) => each.isCurrent && !informed.includes(each));
    const noted = this.#write({
      order: [...others, ...numbered],
      has: () => false,
      write: (member) => (numbered.includes(member) ? member.write(notes, signal) : write(member)),
      target: others.length + numbered.length,
      enough: 0,
    });
    const rest = this.#takers(record.id).filter((each) => !keepers.includes(each));
    const copies = await this.#write({
      order: [...keepers, ...rest],
      has: () => false,
      write,
      mayContinue: () => !watch.isRemoved,
      target: Math.max(this.#set.targetOf(record.type, record.id), keepers.length),
      // A volume that misses a decision is struck off, so it gets `lag_ms`.
      mayLeave: (member) => isSlow(member) && !keepers.includes(member),
    });
    const { written } = await noted;
    this.#require(copies, signal);
    await this.#strike(informed, [...copies.written, ...written], signal);
  }

  /** Writes a decision about an object to every current volume. */
  async #putMark(record: NewRecord, signal: AbortSignal): Promise<void> {
    const key = chunkKey(record.id);
    const isRemoval = record.type === RecordType.remove;
    if (isRemoval) this.#set.removals.begin(key);
    const note = this.#set.membership.nextDecision();
    try {
      const listeners = this.#listeners();
      const writeTo = (to: readonly Member[], init: { enough?: number }): Promise<Copies> => {
        const write = (member: Member): Promise<void> => member.write([record, note], signal);
        return this.#write({ order: to, has: () => false, write, target: to.length, ...init });
      };
      // Stale volumes get it as well, but it is not required.
      const others = writeTo(
        listeners.filter((member) => !member.isCurrent),
        { enough: 0 },
      );
      const copies = await writeTo(
        listeners.filter((member) => member.isCurrent),
        {},
      );
      const written = [...copies.written, ...(await others).written];
      // Volumes that joined meanwhile missed it. Those that were struck off or replaced meanwhile do not count.
      const counting = (): Copies => ({ ...copies, written: written.filter((each) => this.#counts(each)) });
      if (counting().written.length < this.#set.write_min) this.#missed(this.#set.members, written);
      this.#require(counting(), signal);
      await this.#strike(this.#set.members, written, signal);
      this.#require(counting(), signal);
    } catch (error) {
      this.#set.membership.decisionRefused();
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

  /** The volumes that get decisions: current ones, and writable ones that may be being reconciled. */
  #listeners(): Member[] {
    return this.#set.members.filter((each) => each.isReadable && (each.isCurrent || each.isWritable));
  }

  #counts(member: Member): boolean {
    return member.isCurrent && member.isReadable && this.#set.members.includes(member);
  }

  /** Strikes off volumes that missed a decision, and absent ones. */
  async #strike(informed: readonly Member[], written: readonly Member[], signal: AbortSignal): Promise<void> {
    const ids = this.#missed(informed, written).map((member) => member.id);
    await this.#set.membership.strike([...ids, ...this.#set.membership.absent()], signal);
  }

  /** The volumes that missed a decision, even stale ones: a reconciliation under way has to start over. */
  #missed(informed: readonly Member[], written: readonly Member[]): Member[] {
    const missed = informed.filter((member) => !written.includes(member));
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

/** A full volume could not take the new record and would be struck off, so the write is refused first. */
function requireRoom(holders: readonly Member[]): void {
  const full = holders.find((member) => member.isCurrent && member.view.condition === 'full');
  if (full === undefined) return;
  throw new RonError('storage_full', `${full.name} is full: the media type cannot be changed`, {
    retry_after_ms: 1000,
  });
}
