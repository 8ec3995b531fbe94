/**
 * A volume as a member of a set: its duty, its health, and whether its answers about objects count.
 *
 * Contract: after a failed write the volume is not written to for `PROBE_AFTER_MS`; then one write probes it. Its records stay
 * readable until it is lost. The state is that of its lifecycle while the session lasts in which the member was opened.
 */
import { isRonError, RonError, sched } from '@ron/kernel';
import { conditionOf, takesRoom, type Kind, type NewRecord, type Volume, type VolumeCondition } from '@ron/cas';
import { VolumeLifecycle, type OpenEvent, type OpenState } from '../lifecycle/volume-lifecycle.ts';
import type { Place } from '../placement/placement.ts';

/** The state of a member, as operators see it. */
export type MemberStatus = 'active' | 'draining' | 'drained' | 'lost';

export interface MemberInit {
  volume: Volume;
  /** Its share of the records relative to other volumes, usually its size. Default 1. */
  weight?: number;
  /** Default: active. */
  duty?: 'active' | 'draining';
  /** In the state `opening`. Default: a new one. */
  lifecycle?: VolumeLifecycle;
}

export interface MemberView {
  readonly id: string;
  readonly name: string;
  readonly domain: string;
  readonly weight: number;
  readonly status: MemberStatus;
  readonly condition: VolumeCondition;
  /** Why it takes no writes, for operators. Empty when it does. */
  readonly reason: string;
  /** False until it has every decision that was made in its absence. */
  readonly isCurrent: boolean;
  readonly isDiverged: boolean;
  readonly used_bytes: number;
}

/** How long a failed volume is not written to. */
export const PROBE_AFTER_MS = 5000;

export class Member implements Place {
  readonly volume: Volume;
  readonly lifecycle: VolumeLifecycle;
  readonly id: string;
  /** The directory, for messages. */
  readonly name: string;
  domain: string;
  weight: number;
  /** Decisions about objects that it missed. Reconciliation starts over when the count changes. */
  missed_total = 0;
  #session: number | undefined;
  #recordsUnderWay = 0;
  #failure: RonError | undefined;
  readonly #onGone: ((reason: string) => void) | undefined;
  #failed_ms = 0;
  #slow_until_ms = -Infinity;
  #slowWrites_until_ms = -Infinity;

  /** `onGone`: called when a write finds that the volume has vanished. Must not throw. */
  constructor(init: MemberInit, onGone?: (reason: string) => void) {
    this.#onGone = onGone;
    this.volume = init.volume;
    this.lifecycle = init.lifecycle ?? VolumeLifecycle.opening();
    this.id = init.volume.id;
    this.name = init.volume.name;
    this.domain = init.volume.domain;
    this.weight = init.weight ?? 1;
  }

  /** Opens the session of this member. False when the volume was abandoned or removed while it was opened. */
  join(duty: 'active' | 'draining'): boolean {
    const isOpened = this.lifecycle.apply({ type: 'opened', duty });
    if (isOpened) this.#session = this.lifecycle.open?.session;
    return isOpened;
  }

  /** False when the event does not apply, or the session of this member has ended. */
  apply(event: OpenEvent): boolean {
    return this.open !== undefined && this.lifecycle.apply(event);
  }

  /** The state while its session lasts. */
  get open(): OpenState | undefined {
    const { open } = this.lifecycle;
    return open?.session === this.#session ? open : undefined;
  }

  get status(): MemberStatus {
    return this.open?.duty ?? 'lost';
  }

  get isActive(): boolean {
    return this.open?.duty === 'active';
  }

  /** Its records are being moved to others, or have been. */
  get isDraining(): boolean {
    const duty = this.open?.duty;
    return duty === 'draining' || duty === 'drained';
  }

  /** Every record of it is stored elsewhere: shown by a plan since which nothing has changed. */
  get isDrained(): boolean {
    return this.open?.duty === 'drained';
  }

  /** Whether its answers about objects and pins count. */
  get isCurrent(): boolean {
    const freshness = this.open?.freshness;
    return freshness === 'current' || freshness === 'unverified';
  }

  /** It was used without the others, and has not been reconciled with them. */
  get isDiverged(): boolean {
    const freshness = this.open?.freshness;
    return freshness === 'diverged' || freshness === 'adopted';
  }

  /** It lost records that it cannot name before it was opened, and has not been compared with the others since. */
  get isUnverified(): boolean {
    const freshness = this.open?.freshness;
    return freshness === 'unverified' || (freshness === 'joining' && this.volume.isDoubtful === true);
  }

  get isReadable(): boolean {
    return this.open !== undefined;
  }

  /** Whether a write may be tried. */
  get isWritable(): boolean {
    if (!this.isReadable) return false;
    return this.#failure === undefined || sched.now_ms() - this.#failed_ms >= PROBE_AFTER_MS;
  }

  /** Whether new records may go there. */
  get takesRecords(): boolean {
    return this.isActive && this.isWritable;
  }

  /** Whether records are being written to it. Decisions and notes do not count: a drain does not move them. */
  get isTakingRecords(): boolean {
    return this.#recordsUnderWay > 0;
  }

  /** A read was slow or failed in the last `PROBE_AFTER_MS`: other volumes are read first. */
  get isSlow(): boolean {
    return sched.now_ms() < this.#slow_until_ms;
  }

  readFailed(): void {
    this.#slow_until_ms = sched.now_ms() + PROBE_AFTER_MS;
  }

  /** A write or sync was slow in the last `PROBE_AFTER_MS`: new records go to other volumes first. */
  get isSlowToWrite(): boolean {
    return sched.now_ms() < this.#slowWrites_until_ms;
  }

  wroteSlowly(): void {
    this.#slowWrites_until_ms = sched.now_ms() + PROBE_AFTER_MS;
  }

  /** The error of the last write, if it failed. */
  get failure(): RonError | undefined {
    return this.#failure;
  }

  get view(): MemberView {
    const { id, name, domain, weight, status, isCurrent, isDiverged } = this;
    const { condition, reason } = this.#condition();
    const used_bytes = this.isReadable ? this.volume.stats().used_bytes : 0;
    return { id, name, domain, weight, status, condition, reason, isCurrent, isDiverged, used_bytes };
  }

  holds(kind: Kind, id: Uint8Array): boolean {
    return this.isReadable && this.volume.has(kind, id);
  }

  holdsDurably(kind: Kind, id: Uint8Array): boolean {
    return this.isReadable && this.volume.isDurable(kind, id);
  }

  /** Begins the write in the step in which it is called, and records its outcome. */
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

  /** A write that was refused for its size or for a full queue says nothing about the volume. */
  #failed(error: unknown): void {
    if (isRonError(error, 'busy') || isRonError(error, 'payload_too_large')) return;
    this.#failed_ms = sched.now_ms();
    this.#failure = isRonError(error)
      ? error
      : new RonError('not_ready', `${this.name} failed`, { cause: error, retry_after_ms: PROBE_AFTER_MS });
    if (this.isReadable && conditionOf(this.#failure) === 'gone') this.#onGone?.(this.#failure.message);
  }

  #condition(): { condition: VolumeCondition; reason: string } {
    if (!this.isReadable) return { condition: 'failed', reason: this.lifecycle.reason ?? '' };
    if (this.#failure !== undefined) {
      return { condition: conditionOf(this.#failure), reason: `${this.name}: ${this.#failure.message}` };
    }
    return this.volume.state;
  }
}
