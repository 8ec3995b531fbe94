/**
 * A volume as a part of a set: what it is for, whether it works, and whether its word about objects counts.
 *
 * Promise: a volume whose write failed is left alone for `PROBE_AFTER_MS`, then one write tries it again. What it holds can
 * be read all the while, until it is lost. Bound: a few words. Cancellation: none; no call waits.
 */
import { isRonError, RonError, sched } from '@ron/kernel';
import { conditionOf, takesRoom, type Kind, type NewRecord, type Volume, type VolumeCondition } from '@ron/cas';
import type { Place } from '../placement/placement.ts';

/** Active ones take new records; draining ones give theirs away; from lost ones nothing is expected any more. */
export type Life = 'active' | 'draining' | 'lost';

export interface MemberInit {
  volume: Volume;
  /** How much it gets, compared with others; usually its size. Default 1. */
  weight?: number;
  life?: 'active' | 'draining';
}

export interface MemberView {
  readonly id: string;
  readonly name: string;
  readonly domain: string;
  readonly weight: number;
  readonly life: Life;
  readonly condition: VolumeCondition;
  /** Why it takes no writes, for people. Empty when it does. */
  readonly reason: string;
  /** False while it has not been told everything that was decided in its absence. */
  readonly isCurrent: boolean;
  readonly isApart: boolean;
  readonly used_bytes: number;
}

/** A volume that failed is tried again after this time. */
export const PROBE_AFTER_MS = 5000;

export class Member implements Place {
  readonly volume: Volume;
  readonly id: string;
  /** For people: the directory. */
  readonly name: string;
  domain: string;
  weight: number;
  life: Life;
  /** Its word about objects and pins counts before that of others which were away. */
  isCurrent = true;
  /** It was used apart from the others: the operator has to decide that it is taken in. */
  isApart = false;
  /** The operator did. */
  isTakenIn = false;
  /** It was told everything since it was opened, so that records which it lost at that time do not matter. */
  isReconciled = false;
  /** Decisions about objects that it missed. Reconciliation begins anew when there are more. */
  missed_total = 0;
  /** Everything that it holds is held elsewhere: found by a plan since which nothing has changed. */
  isDrained = false;
  #recordsUnderWay = 0;
  #lostReason = '';
  #failure: RonError | undefined;
  readonly #onGone: ((reason: string) => void) | undefined;
  #failed_ms = 0;
  #slow_until_ms = -Infinity;
  #slowWrites_until_ms = -Infinity;

  /** `onGone`: told when a write finds that the volume is not there any more. Must not throw. */
  constructor(init: MemberInit, onGone?: (reason: string) => void) {
    this.#onGone = onGone;
    this.volume = init.volume;
    this.id = init.volume.id;
    this.name = init.volume.name;
    this.domain = init.volume.domain;
    this.weight = init.weight ?? 1;
    this.life = init.life ?? 'active';
  }

  /** It lost records that it cannot name before it was opened, and has not been compared with the others since. */
  get isInDoubt(): boolean {
    return this.volume.isDoubtful === true && !this.isReconciled;
  }

  get isReadable(): boolean {
    return this.life !== 'lost';
  }

  /** Whether a write may be tried. */
  get isWritable(): boolean {
    if (!this.isReadable) return false;
    return this.#failure === undefined || sched.now_ms() - this.#failed_ms >= PROBE_AFTER_MS;
  }

  /** Whether new records may go there. */
  get takesRecords(): boolean {
    return this.life === 'active' && this.isWritable;
  }

  /** Whether records are being put there. Decisions and notes do not count: they are not what it is emptied of. */
  get isTakingRecords(): boolean {
    return this.#recordsUnderWay > 0;
  }

  /** A read took too long, or failed, a moment ago: others are asked first. */
  get isSlow(): boolean {
    return sched.now_ms() < this.#slow_until_ms;
  }

  readFailed(): void {
    this.#slow_until_ms = sched.now_ms() + PROBE_AFTER_MS;
  }

  /** A write or sync took longer than those of other volumes a moment ago: new records go to others first. */
  get isSlowToWrite(): boolean {
    return sched.now_ms() < this.#slowWrites_until_ms;
  }

  wroteSlowly(): void {
    this.#slowWrites_until_ms = sched.now_ms() + PROBE_AFTER_MS;
  }

  /** What the last write met. */
  get failure(): RonError | undefined {
    return this.#failure;
  }

  get view(): MemberView {
    const { id, name, domain, weight, life, isCurrent, isApart } = this;
    const { condition, reason } = this.#condition();
    const used_bytes = this.isReadable ? this.volume.stats().used_bytes : 0;
    return { id, name, domain, weight, life, condition, reason, isCurrent, isApart, used_bytes };
  }

  holds(kind: Kind, id: Uint8Array): boolean {
    return this.isReadable && this.volume.has(kind, id);
  }

  holdsDurably(kind: Kind, id: Uint8Array): boolean {
    return this.isReadable && this.volume.isDurable(kind, id);
  }

  lose(reason: string): void {
    this.life = 'lost';
    this.#lostReason = reason;
  }

  /** Puts records, in the step in which it is called, and remembers how that went. */
  write(records: readonly NewRecord[], signal: AbortSignal, durability?: 'now' | 'later'): Promise<void> {
    const write = this.#watch(this.volume.put(records, signal, durability), signal);
    return records.some((record) => takesRoom(record.type)) ? this.#count(write) : write;
  }

  sync(signal: AbortSignal): Promise<void> {
    return this.#watch(this.volume.sync(signal), signal);
  }

  async #count(write: Promise<void>): Promise<void> {
    this.#recordsUnderWay += 1;
    try {
      await write;
    } finally {
      this.#recordsUnderWay -= 1;
    }
  }

  async #watch(write: Promise<void>, signal: AbortSignal): Promise<void> {
    try {
      await write;
      this.#failure = undefined;
    } catch (error) {
      if (!signal.aborted) this.#failed(error);
      throw error;
    }
  }

  /** A write that was one too many says nothing about the volume. */
  #failed(error: unknown): void {
    if (isRonError(error, 'busy') || isRonError(error, 'payload_too_large')) return;
    this.#failed_ms = sched.now_ms();
    this.#failure = isRonError(error)
      ? error
      : new RonError('not_ready', `${this.name} failed`, { cause: error, retry_after_ms: PROBE_AFTER_MS });
    if (this.isReadable && conditionOf(this.#failure) === 'gone') this.#onGone?.(this.#failure.message);
  }

  #condition(): { condition: VolumeCondition; reason: string } {
    if (this.life === 'lost') return { condition: 'failed', reason: this.#lostReason };
    if (this.#failure !== undefined) {
      return { condition: conditionOf(this.#failure), reason: `${this.name}: ${this.#failure.message}` };
    }
    return this.volume.state;
  }
}
